"""`tta-bench doctor`: what is found on a machine, and what is said about it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import namedtuple
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tta_bench.checks import doctor, torch_build
from tta_bench.checks.finding import NOTE, OK, PROBLEM, Finding
from tta_bench.cli import app
from tta_bench.plugins import registry

Usage = namedtuple("Usage", "total used free")


def only(findings: Iterator[Finding]) -> Finding:
    found = list(findings)
    assert len(found) == 1, found
    return found[0]


def test_this_machine_is_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTA_BENCH_DATA", raising=False)
    outcome = CliRunner().invoke(app, ["doctor", "--results", str(tmp_path), "--json"])
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(outcome.output)
    assert found["usable"]
    looked = {finding["what"] for finding in found["findings"]}
    assert {"Python", "packages", "plugins", "CPU", "cache", "results", "compiler", "pdflatex"} <= looked
    assert {"data", "devices", "torch build", "torchvision"} <= looked
    assert "cifar10-mini" in next(f["found"] for f in found["findings"] if f["what"] == "data")
    for finding in found["findings"]:
        assert finding["state"] == OK or finding["remedy"], f"no remedy: {finding}"


def test_a_problem_ends_with_one_and_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TTA_BENCH_DATA", str(tmp_path / "nowhere"))
    outcome = CliRunner().invoke(app, ["doctor", "--results", str(tmp_path)])
    assert outcome.exit_code == 1
    assert "no such folder" in outcome.output
    assert "or unset it" in outcome.output
    assert "Not usable: 1 to fix" in outcome.output


@pytest.mark.parametrize("known", ["1.31.0", ""])
def test_the_engine_of_the_extra_is_named_if_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda p: known if p == "onnxruntime" else real(p))
    found = only(doctor.packages())
    assert found.state == OK
    assert ("onnxruntime" in found.found) == bool(known)


def test_a_wrong_python_and_wrong_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.8.1")
    assert only(doctor.python()).state == PROBLEM
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda p: {"torch": "1.13", "timm": ""}.get(p, real(p)))
    found = {finding.what: finding for finding in doctor.packages()}
    assert found["package torch"].found == "1.13"
    assert found["package timm"].found == "not installed"
    assert found["package torch"].remedy.startswith('pip install "torch>=')
    assert set(found) == {"package torch", "package timm"}


@pytest.mark.parametrize(("origin", "state"), [("a-stranger 1.0", NOTE), ("tta-bench 0.1", PROBLEM)])
def test_a_broken_plugin_is_named(origin: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(group: str, name: str) -> object:
        if name == "tent":
            raise registry.UnknownPlugin('method "tent" cannot be imported. Reinstall it.')
        return object()

    monkeypatch.setattr(registry, "load", load)
    monkeypatch.setattr(registry, "origin", lambda group, name: origin)
    broken, counted = doctor.plugins()
    assert (broken.what, broken.state) == ("methods/tent", state)
    assert "Reinstall" in broken.remedy
    assert counted.state == OK


@pytest.mark.parametrize(("gib", "state"), [(0.5, PROBLEM), (5, NOTE), (500, OK)])
def test_room_on_the_disk(gib: float, state: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage(0, 0, int(gib * 2**30)))
    found = only(doctor.folder("cache", tmp_path / "not" / "yet", "$TTA_BENCH_CACHE"))
    assert found.state == state
    assert bool(found.remedy) == (state != OK)
    assert not (tmp_path / "not").exists(), "looking makes no folders"


def test_a_place_that_is_a_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = only(doctor.folder("results", tmp_path / "file", "--results"))
    assert found.state == PROBLEM
    assert "--results" in found.remedy


def test_data_that_is_there_is_ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TTA_BENCH_DATA", str(tmp_path))
    found = {finding.what: finding for finding in doctor.data()}
    assert found["data cifar10-mini"].found == "ready"
    assert found["data imagenet-c"].found == "not here"
    assert str(tmp_path / "imagenet-c") in found["data imagenet-c"].remedy


@pytest.mark.parametrize(
    ("cuda", "gpu", "state"), [(None, False, OK), ("13.2", False, NOTE), ("13.2", True, OK)]
)
def test_a_cuda_build_without_a_gpu_is_a_note(
    cuda: str | None, gpu: bool, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.version.cuda", cuda)
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    found = only(torch_build.torch_build())
    assert found.state == state
    assert ("CUDA 13.2" in found.found) == (cuda is not None)
    assert "GiB" in found.found
    assert ("pytorch.org/get-started" in found.remedy) == (state == NOTE)


def test_the_size_of_torch_is_that_of_its_files() -> None:
    files = distribution("torch").files or []
    assert torch_build.installed_bytes() >= sum(file.size or 0 for file in files) > 0


def test_a_torchvision_for_another_torch_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What PyPI's torchvision does beside a torch without CUDA."""
    message = "operator torchvision::nms does not exist"
    (tmp_path / "torchvision.py").write_text(f"raise RuntimeError({message!r})")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    found = only(torch_build.torchvision_fits())
    assert found.state == PROBLEM
    assert message in found.found
    assert "from one index" in found.remedy


def test_busy_cores_and_missing_tools_are_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    assert only(doctor.processors()).state == NOTE
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert only(doctor.compiler()).state == only(doctor.latex()).state == NOTE


@pytest.mark.slow
def test_ray_answers() -> None:
    found = only(doctor.ray_starts())
    assert found.state == OK, found
    assert "answers after" in found.found
