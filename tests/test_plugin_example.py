"""A stranger's method package: built, installed, checked and run through Ray from another folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

EXAMPLE = Path(__file__).parents[1] / "examples" / "tta-bench-bnstats"


def call(*command: str | Path, cwd: Path) -> str:
    outcome = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=280)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


@pytest.fixture
def installed(tmp_path: Path) -> object:
    """The example, installed from a copy, and gone again afterwards."""
    import shutil

    copy = tmp_path / "package"
    shutil.copytree(EXAMPLE, copy)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    call(*pip, "install", "--no-deps", copy, cwd=tmp_path)
    yield
    call(*pip, "uninstall", "--yes", "tta-bench-bnstats", cwd=tmp_path)


def test_the_example_is_short() -> None:
    lines = (EXAMPLE / "tta_bench_bnstats.py").read_text().splitlines()
    assert len(lines) <= 25


def test_a_method_from_outside_runs_through_ray(installed: object, tmp_path: Path) -> None:
    cli = (sys.executable, "-m", "tta_bench.cli")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "methods").mkdir(parents=True)  # a stranger's folder of that name must not matter
    (elsewhere / "methods" / "__init__.py").write_text("raise RuntimeError('not ours')")
    benchmark = {
        "name": "mine",
        "data": "cifar10-mini",
        "models": ["resnet-micro"],
        "methods": ["bn-adapt", "bn-stats", {"use": "bn-stats", "name": "soft", "temperature": 2.0}],
        "stream": {"corruptions": ["fog"], "rounds": 2, "batch_size": 16, "limit": 32},
        "run": {"engine": "ray", "workers": 1},
    }
    (elsewhere / "mine.yaml").write_text(yaml.safe_dump(benchmark))
    assert "bn-stats" in call(*cli, "list", "methods", cwd=elsewhere)
    assert "FAIL" not in call(*cli, "check", "bn-stats", cwd=elsewhere)
    call(*cli, "run", "mine.yaml", cwd=elsewhere)
    table = call(*cli, "table", "--layout", "long-term", "--format", "csv", cwd=elsewhere)
    rows = [line for line in table.splitlines() if "bn-" in line]
    assert len(rows) == 2
    assert rows[0].split(",")[-1] == rows[1].split(",")[-1], "both normalise by the batch"
