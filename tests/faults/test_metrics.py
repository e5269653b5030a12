"""The metrics of a run, as Prometheus reads them from the nodes of a real cluster."""

from __future__ import annotations

import json
import os
import urllib.request
from collections import Counter
from contextlib import suppress

import pytest

from tests.faults.conftest import Bench
from tools.loopback import Cluster, wait_for
from tta_bench.storage import workers

pytestmark = pytest.mark.slow
PREFIX = "ray_tta_bench_"


def test_prometheus_finds_the_metrics_of_a_run(watched_cluster: Cluster, bench: Bench) -> None:
    """One cell has failed, one has lost its worker and waits in its second domain, and one is done."""
    gate = bench.folder / "gate"
    once = {"fault": "killed", "once": str(bench.folder / "once")}
    methods = [
        {"use": "drift", "name": "waits", "at": 5, "gate": str(gate), **once},
        {"use": "drift", "name": "fails", "at": 4, "fault": "raise"},
        "source",
    ]
    bench.write(methods, run={"engine": "ray"})
    environment = watched_cluster.environment | {"PYTHONPATH": os.environ["PYTHONPATH"]}  # with the plugins
    process = bench.start("--ray-address", watched_cluster.address, env=environment)
    # The first worker dies before it comes to the gate; the second one waits there.
    wait_for(lambda: _by(_scraped(watched_cluster), "restarts", "") == {"": 1})
    wait_for(lambda: _by(_scraped(watched_cluster), "busy_workers", "node").keys() == {_busy_node(bench)})
    states = {"running": 1, "failed": 1, "done": 1}
    for _ in range(3):  # Ray forgets a gauge after it was read, unless it is set again
        wait_for(lambda: _by(_scraped(watched_cluster), "cells", "state") == states)
    found = _scraped(watched_cluster)
    assert _by(found, "records", "status") == {"ok": 6, "failed": 1}, "4 of source, 1 of each other cell"
    assert _by(found, "seconds_per_pass_count", "") == {"": 4}, "source's second round repeats its first"
    assert 0 < _by(found, "seconds_per_pass_sum", "")[""] < 4 * 10
    gate.touch()
    process.communicate(timeout=200)
    assert process.returncode == 1, "one cell has failed"


def _busy_node(bench: Bench) -> str:
    """The node of the only worker that computes, as `status --watch` shows it."""
    rows = workers.read(bench.results / "faults", 0)
    return rows[0]["node"] if len(rows) == 1 else ""


def _scraped(cluster: Cluster) -> list[tuple[str, dict[str, str], float]]:
    """Name, labels and value of our metrics, from all nodes that Ray's file for Prometheus lists."""
    (targets,) = json.loads((cluster.folder / "prom_metrics_service_discovery.json").read_text())
    found = []
    for target in targets["targets"]:
        with suppress(OSError):  # a node that is gone
            text = urllib.request.urlopen(f"http://{target}/metrics", timeout=10).read().decode()
            found += [_parsed(line) for line in text.splitlines() if line.startswith(PREFIX)]
    return found


def _parsed(line: str) -> tuple[str, dict[str, str], float]:
    """A line of Prometheus' format, such as `ray_tta_bench_cells{state="done"} 3.0`."""
    name, _, rest = line.removeprefix(PREFIX).partition("{")
    labels, _, value = rest.rpartition("} ")
    pairs = (pair.split("=", 1) for pair in labels.split(",") if "=" in pair)
    return name, {key: text.strip('"') for key, text in pairs}, float(value)


def _by(found: list[tuple[str, dict[str, str], float]], name: str, label: str) -> dict[str, float]:
    """The values of one metric that are not 0, by one of its labels."""
    total: Counter[str] = Counter()
    for each, labels, value in found:
        if each.removesuffix("_total") == name and value:
            total[labels.get(label, "")] += value  # type: ignore[assignment]
    return dict(total)
