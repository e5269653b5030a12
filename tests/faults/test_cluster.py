"""A real cluster of two nodes, each a `ray start` with a loopback address of its own, that runs join."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import Bench
from tools.loopback import HEAD, OTHER, THIRD, Cluster, kill_session, processes, wait_for
from tta_bench.execution.ray import head
from tta_bench.storage import workers

pytestmark = pytest.mark.slow
LOAD_SECONDS = 15.0  # for a process to end on a machine that starts others meanwhile


@pytest.fixture(scope="module")
def cluster(plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("ray"), {"PYTHONPATH": str(plugins)})
    yield made
    made.stop()


def test_ctrl_c_twice_stops_a_run_now_and_leaves_the_cluster(cluster: Cluster, bench: Bench) -> None:
    hangs = bench.folder / "hangs"
    bench.write([{"use": "drift", "fault": "hang", "at": 5, "once": str(hangs)}], run={"engine": "ray"})
    process = bench.start("--ray-address", cluster.address, env=cluster.environment)
    wait_for(lambda: hangs.exists() and any('"status":"ok"' in line for line in bench.records()))
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=3)  # the batch at hand never ends
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "run the same command again" in errors
    assert "Traceback" not in errors
    wait_for(lambda: not cluster.workers(), 20)
    assert cluster.head.poll() is None
    assert len(bench.files("checkpoints/*.checkpoint")) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_driver_stops_the_run_and_the_same_cluster_continues_it(
    cluster: Cluster, bench: Bench, undisturbed: Callable[[Bench], str], number: signal.Signals
) -> None:
    gate = bench.folder / "gate"
    bench.write([{"use": "drift", "at": 5, "gate": str(gate), "pause": 1.0}, "source"], run={"engine": "ray"})
    process = bench.start("--ray-address", cluster.address, env=cluster.environment)
    wait_for(lambda: bench.files("checkpoints/*.drift.*"))
    seen = bench.records()
    process.send_signal(number)
    gate.touch()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert "run the same command again" in errors
    assert "Traceback" not in errors
    assert seen <= bench.records()
    wait_for(lambda: not cluster.workers())
    assert cluster.head.poll() is None
    stopped_at = bench.records()
    assert bench.run("--ray-address", cluster.address, env=cluster.environment).returncode == 0
    assert stopped_at <= bench.records()
    assert bench.tables() == undisturbed(bench)


def test_a_lost_node_costs_nothing_but_time(
    cluster: Cluster, bench: Bench, undisturbed: Callable[[Bench], str]
) -> None:
    # Every drift waits in its second domain, so the run cannot end before the other node has a worker.
    gate = bench.folder / "gate"
    waiting = [
        {"use": "drift", "name": f"drift {i}", "at": 5, "gate": str(gate), "pause": i / 1000}
        for i in range(3)
    ]
    bench.write([*waiting, "source", "t3a"], run={"engine": "ray"})
    process = bench.start("--ray-address", cluster.address, env=cluster.environment)
    wait_for(lambda: "ray::Worker.run" in processes(cluster.other.pid).values())
    wait_for(lambda: sum(len(path.read_text().splitlines()) for path in bench.files("records/*drift*")) >= 2)
    seen = bench.records()
    kill_session(cluster.other)
    gate.touch()
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert seen <= bench.records()
    assert bench.tables() == undisturbed(bench)


def test_nodes_that_join_get_the_code_and_one_that_does_not_fit_is_left_out(
    cluster: Cluster, bench: Bench, undisturbed: Callable[[Bench], str]
) -> None:
    """Two nodes join a run: one has no plugins and a broken tta-bench, one has another PyTorch."""
    kill_session(cluster.other)
    gate = bench.folder / "gate"
    waiting = [
        {"use": "drift", "name": f"drift {i}", "at": 5, "gate": str(gate), "pause": i / 1000}
        for i in range(3)
    ]
    bench.write([*waiting, "source"], run={"engine": "ray"})
    process = bench.start("--ray-address", cluster.address, env=cluster.environment)
    wait_for(lambda: bench.records())
    broken = _package(bench.folder / "broken", "tta_bench", "raise ImportError('an old release')")
    node = cluster.join(OTHER, PYTHONPATH=str(broken))
    torch = bench.folder / "torch"
    facts = torch / "torch-9.9.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    # One after the other: nodes that start together on one machine choose the same socket names.
    wait_for(lambda: "ray::Worker.run" in processes(node.pid).values())
    cluster.join(THIRD, PYTHONPATH=str(torch))
    # The process of a worker is there before the driver has given it a cell and written that.
    wait_for(lambda: {row["node"] for row in workers.read(bench.results / "faults", 0)} >= {HEAD, OTHER})
    told: list[str] = []
    reader = threading.Thread(target=lambda: told.extend(process.stderr or ()))
    reader.start()
    wait_for(lambda: "left out" in "".join(told))
    gate.touch()
    assert process.wait(timeout=200) == 0
    reader.join(timeout=30)
    errors = "".join(told)
    assert f"Node {THIRD} is left out: torch 9.9 is installed, and the run started with torch" in errors
    assert errors.count("left out") == 1
    assert bench.tables() == undisturbed(bench)
    assert not bench.files("workers.json")


def _package(folder: Path, name: str, text: str) -> Path:
    """A folder with a package of one file."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)
    return folder


def test_a_lost_head_ends_the_run_with_a_message_and_it_continues(
    plugins: Path,
    bench: Bench,
    undisturbed: Callable[[Bench], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    lost = Cluster(tmp_path_factory.mktemp("head"), {"PYTHONPATH": str(plugins)})
    gate = bench.folder / "gate"
    bench.write([{"use": "drift", "at": 8, "gate": str(gate)}, "source"], run={"engine": "ray"})
    try:
        process = bench.start("--ray-address", lost.address, env=lost.environment)
        wait_for(lambda: len(bench.records()) >= 3)
        seen = bench.records()
        kill_session(lost.head)
        begun = time.monotonic()
        _, errors = process.communicate(timeout=60)
        seconds = time.monotonic() - begun
    finally:
        lost.stop()
    assert process.returncode == head.EXIT_CODE, errors
    worst = head.LOST_SECONDS + head.BLOCKED_SECONDS + 2 * head.PERIOD_SECONDS  # of the watch
    assert seconds < worst + LOAD_SECONDS, "Ray itself would wait for 60 s"
    told = errors.strip().splitlines()[-1]
    assert told.startswith(f"Ray at {lost.address}: the head node has not answered for")
    assert "the same command continues" in told
    assert "gcs" not in errors.lower(), "Ray's own text"
    assert seen <= bench.records()
    gate.touch()
    assert bench.here("--engine", "local").returncode == 0
    assert seen <= bench.records()
    assert bench.tables() == undisturbed(bench)
