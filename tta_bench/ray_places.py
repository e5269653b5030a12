"""How many workers a cluster has a place for, on GPUs and on cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tta_bench.exchange import Policy


def places(nodes: Iterable[Mapping[str, float]], policy: Policy) -> dict[str, int]:
    """How many workers nodes with these resources hold: on GPUs where a node has some, else on its cores."""
    room = {"gpu": 0, "cpu": 0}
    for resources in nodes:
        on_cores = int(resources.get("CPU", 0)) // policy.threads
        gpus = resources.get("GPU", 0)
        if gpus and policy.device != "cpu":
            room["gpu"] += min(on_cores, int(gpus) * int(1 / policy.gpus + 1e-9))
        elif policy.device != "cuda":
            room["cpu"] += on_cores
    return room


def nowhere(policy: Policy) -> str:
    """Why a cluster has no place for a worker, and what to do about it."""
    if policy.device == "cuda":
        return (
            f"no node has a GPU and {policy.threads} CPUs, and run.device is cuda. Choose auto or cpu, "
            "lower run.threads, or add a node."
        )
    return f"no node has {policy.threads} CPUs. Lower run.threads, or add a node."
