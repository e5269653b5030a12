"""How many workers a cluster can hold, on GPUs and on CPU cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tta_bench.execution.messages import RunPolicy


def capacity(nodes: Iterable[Mapping[str, float]], policy: RunPolicy) -> dict[str, int]:
    """How many workers fit on these nodes: on GPUs if a node has some, otherwise on its cores."""
    workers = {"gpu": 0, "cpu": 0}
    for resources in nodes:
        on_cores = int(resources.get("CPU", 0)) // policy.threads
        gpus = resources.get("GPU", 0)
        if gpus and policy.device != "cpu":
            workers["gpu"] += min(on_cores, int(gpus) * int(1 / policy.gpus + 1e-9))
        elif policy.device != "cuda":
            workers["cpu"] += on_cores
    return workers


def no_capacity(policy: RunPolicy) -> str:
    """Why no worker fits on a cluster, and what to do about it."""
    if policy.device == "cuda":
        return (
            f"no node has a GPU and {policy.threads} CPUs, and run.device is cuda. Choose auto or cpu, "
            "lower run.threads, or add a node."
        )
    return f"no node has {policy.threads} CPUs. Lower run.threads, or add a node."
