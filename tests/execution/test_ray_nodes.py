"""What travels to the nodes of a cluster, which nodes are used, and what is told about dead workers."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tta_bench import config, grid
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.errors import UserError
from tta_bench.execution.messages import RunPolicy
from tta_bench.execution.ray import head, requirements
from tta_bench.execution.ray.connection import check_address
from tta_bench.execution.ray.jobs import in_short
from tta_bench.execution.ray.nodes import Nodes
from tta_bench.execution.ray.packages import copied
from tta_bench.execution.ray.stop_flag import StopFlag
from tta_bench.execution.ray.versions import other_versions
from tta_bench.execution.ray.worker import Worker
from tta_bench.grid import Cell
from tta_bench.models.micro import ResNetMicro


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
    (text,) = other_versions(wanted.versions | {"timm": "0.1"})
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


WITHOUT = """
import importlib.abc, importlib.metadata, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "{package}":
            raise ModuleNotFoundError(f"No module named {{name!r}}")

sys.meta_path.insert(0, Missing())
known = importlib.metadata.distribution
def distribution(name):
    if name == "{package}":
        raise importlib.metadata.PackageNotFoundError(name)
    return known(name)
importlib.metadata.distribution = distribution
from tta_bench.execution.ray.worker import Worker
print(Worker({{}}, None).ready({versions}))
"""


@pytest.mark.parametrize(
    ("package", "told"),
    [
        ("torch", "['no torch is installed, and the run started with torch 9.9. Install torch 9.9 there']"),
        ("pydantic", "No module named 'pydantic'. Install tta-bench with all it needs there"),
    ],
)
def test_a_node_without_a_package_tells_which(package: str, told: str) -> None:
    """Ray can only import the worker there if its module needs no other package."""
    versions = {"torch": "9.9"} if package == "torch" else {}
    code = WITHOUT.format(package=package, versions=versions)
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert outcome.returncode == 0, outcome.stderr
    assert told in outcome.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_worker_without_the_gpu_that_the_run_wants_tells_it() -> None:
    (text,) = Worker(asdict(RunPolicy(device="cuda")), StopFlag("test")).ready({})
    assert text.startswith("run.device is cuda, and PyTorch sees no GPU here")


def test_a_plugin_that_fails_on_a_node_is_named(cells: list[Cell], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, worker = requirements.requirements(cells), Worker({}, StopFlag("test"))

    def gone(*_: object) -> str:
        raise OSError("stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(ResNetMicro, "fingerprint", gone)
        (text,) = worker.examine(wanted, "cpu")
    assert 'model "resnet-micro"' in text
    assert "does not work: OSError: stale file handle. Fix or remove it" in text
    with monkeypatch.context() as patch:
        patch.setattr(Cifar10Mini, "domain_fingerprint", gone)
        (text,) = worker.examine(wanted, "cpu")
    assert 'data "cifar10-mini"' in text
    with monkeypatch.context() as patch:
        patch.setattr(requirements.shutil, "disk_usage", gone)
        (text,) = worker.examine(wanted, "cpu")
    assert text.startswith("OSError: stale file handle. Install")


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


@pytest.mark.parametrize(
    "amount",
    [
        "where the lease was running was 30.16GB / 31.06GB (0.971), which exceeds the threshold of 0.95.",
        "was 30.16GB used / 31.06GB limit (0.971)",  # since Ray 2.60
    ],
)
def test_a_worker_killed_for_memory_is_told_without_the_processes_of_others(amount: str) -> None:
    ray_text = (
        "Task was killed due to the node running low on memory.\nMemory on the node (IP: 1.2.3.4, ID: ab) "
        f"{amount}\nPID\tMEM(GB)\tCOMMAND\n410\t12.1\tpython secret.py --password x"
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


def test_an_address_of_the_ray_client_is_refused() -> None:
    with pytest.raises(UserError, match=r"ray://head:10001: runs cannot use the Ray client. Use `tta-bench"):
        check_address("ray://head:10001")


def test_a_program_that_has_lost_the_head_ends_with_its_own_exit_code() -> None:
    """Ray's handler, which waits for the head node, is not called; what is registered otherwise is."""
    code = (
        "import atexit, sys, time\n"
        "from tta_bench.execution.ray import head\n"
        "def shutdown(): time.sleep(100)\n"
        "atexit.register(shutdown)\n"
        "atexit.register(print, 'cleaned up')\n"
        "head.PERIOD_SECONDS = head.LOST_SECONDS = 0.01\n"
        "watch = head.HeadWatch('127.0.0.1:9')\n"
        "watch.lost.wait(20)\n"
        "watch.close(shutdown)\n"
        "sys.exit(7)\n"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 7, outcome.stderr
    assert outcome.stdout == "cleaned up\n"
