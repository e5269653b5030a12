"""What travels to the nodes of a cluster, which nodes are used, and what is told about dead workers."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tta_bench import config, grid
from tta_bench.errors import UserError
from tta_bench.execution.messages import RunPolicy
from tta_bench.execution.ray import head, requirements
from tta_bench.execution.ray.deaths import in_short
from tta_bench.execution.ray.nodes import Nodes
from tta_bench.execution.ray.packages import copied
from tta_bench.grid import Cell


@pytest.fixture
def cells(write_yaml: Any) -> list[Cell]:
    return grid.expand(config.load(write_yaml(methods=["source", "tent"])))


def test_the_copies_are_complete_without_the_installation(cells: list[Cell], tmp_path: Path) -> None:
    """Another Python, which finds only the copies and the libraries, sees the same plugins and code."""
    places = copied([(each.group, each.use) for cell in cells for each in cell.plugins], tmp_path)
    assert {Path(place).parent for place in places} == {tmp_path}
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    code = (
        "import tta_bench, tta_bench_methods\n"
        "from tta_bench.plugins.identity import code_of\n"
        "print(tta_bench.__file__, tta_bench_methods.__file__, code_of('methods', 'tent'), sep='|')"
    )
    path = os.pathsep.join([str(tmp_path), *libraries])
    outcome = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert outcome.returncode == 0, outcome.stderr
    package, methods, found = outcome.stdout.strip().split("|")
    assert Path(package).is_relative_to(tmp_path)
    assert Path(methods).is_relative_to(tmp_path)
    assert found == next(cell for cell in cells if cell.method.use == "tent").method.code


def test_this_machine_fits_its_own_run(cells: list[Cell]) -> None:
    assert requirements.problems(requirements.requirements(cells), "cpu") == []


def test_what_a_node_lacks_is_named_with_a_remedy(cells: list[Cell], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = requirements.requirements(cells)
    other = replace(wanted, versions=wanted.versions | {"timm": "0.1"})
    (text,) = requirements.problems(other, "cpu")
    assert "the run started with timm 0.1. Install timm 0.1 there" in text

    (text,) = requirements.problems(wanted, "gpu")
    assert "PyTorch sees none. Install a CUDA build" in text

    changed = [replace(each, code="other") for each in wanted.plugins if each.use == "tent"]
    (text,) = requirements.problems(replace(wanted, plugins=tuple(changed)), "cpu")
    assert "the code of method tent differs" in text

    changed = [replace(each, fingerprint="other") for each in wanted.plugins if each.group == "models"]
    (text,) = requirements.problems(replace(wanted, plugins=tuple(changed)), "cpu")
    assert "the weights of model" in text

    broken = replace(wanted, data=tuple(replace(each, images="other") for each in wanted.data))
    (text,) = requirements.problems(broken, "cpu")
    assert "the images of data" in text

    monkeypatch.setattr(requirements, "FREE_BYTES", 2**63)
    (text,) = requirements.problems(wanted, "cpu")
    assert "Make room" in text


def row(name: str, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"NodeID": name, "NodeManagerAddress": name, "Alive": alive, "Resources": resources}


def test_workers_are_spread_over_the_nodes_that_fit() -> None:
    told: list[str] = []
    nodes = Nodes(RunPolicy(), "auto", told.append)
    nodes.update([row("a", CPU=2), row("b", CPU=4, GPU=1), row("c", alive=False, CPU=8)])
    assert [(node.name, device, room) for node, device, room in nodes.rooms()] == [
        ("b", "gpu", 1),
        ("a", "cpu", 2),
    ]
    nodes.workers = 2
    assert [room for _, _, room in nodes.rooms()] == [1, 1]
    nodes.leave_out(nodes.known["b"], "torch 1 is installed")
    assert told == ["Node b is left out: torch 1 is installed."]
    assert nodes.total() == 2
    with pytest.raises(UserError, match=r"(?s)no node fits this run.*node a: no disk.*node b: torch 1"):
        nodes.leave_out(nodes.known["a"], "no disk")


def test_a_worker_killed_for_memory_is_told_without_the_processes_of_others() -> None:
    ray_text = (
        "Task was killed due to the node running low on memory.\nMemory on the node (IP: 1.2.3.4, ID: ab) "
        "where the lease was running was 30.16GB / 31.06GB (0.971), which exceeds the threshold of 0.95.\n"
        "PID\tMEM(GB)\tCOMMAND\n410\t12.1\tpython secret.py --password x"
    )
    told = in_short(RuntimeError(ray_text))
    assert "30.16GB / 31.06GB used" in told
    assert "secret" not in told
    assert "fewer --workers" in told
    assert in_short(RuntimeError("boom")) == "boom"


def test_a_driver_inside_a_call_of_ray_is_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody answers at port 9, and nobody asks the watch."""
    for name in ("PERIOD_SECONDS", "LOST_SECONDS", "BLOCKED_SECONDS"):
        monkeypatch.setattr(head, name, 0.01)
    ended: list[bool] = []
    watch = head.HeadWatch("127.0.0.1:9", end=lambda: ended.append(True))
    watch.thread.join(timeout=20)
    assert ended == [True]
    assert "the same command continues" in capsys.readouterr().err
    with pytest.raises(head.HeadLost):
        watch.check()
