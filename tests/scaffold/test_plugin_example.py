"""A stranger's method package: built, installed, checked and run through Ray from another folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.helpers.other_environment import OtherEnvironment, installed_here

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE, SCENARIO = EXAMPLES / "tta-bench-bnstats", EXAMPLES / "tta-bench-interleaved"


@pytest.mark.parametrize("example", [EXAMPLE, SCENARIO])
def test_the_example_is_short(example: Path) -> None:
    lines = (example / f"{example.name.replace('-', '_')}.py").read_text().splitlines()
    assert len(lines) <= 25


@pytest.mark.slow
def test_a_scenario_from_outside_runs_through_ray(tmp_path: Path) -> None:
    before = installed_here()
    environment = OtherEnvironment(tmp_path / "environment")
    shutil.copytree(SCENARIO, tmp_path / "package")
    environment.shell("pip install --quiet --no-deps ./package", cwd=tmp_path)
    scenarios = ["continual", {"use": "interleaved", "run": 8}]
    benchmark = {
        "name": "mine",
        "data": "cifar10-mini",
        "models": ["resnet-micro"],
        "methods": ["source"],
        "stream": {
            "corruptions": ["fog", "snow"],
            "rounds": 1,
            "batch_size": 16,
            "limit": 32,
            "scenario": scenarios,
        },
        "run": {"engine": "ray", "workers": 1},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(benchmark))
    assert "interleaved" in environment.shell("tta-bench list streams", cwd=tmp_path)
    assert "FAIL" not in environment.shell("tta-bench check interleaved", cwd=tmp_path)
    environment.shell("tta-bench run mine.yaml", cwd=tmp_path)
    table = environment.shell("tta-bench table --layout scenarios --format csv", cwd=tmp_path)
    (row,) = [line.split(",") for line in table.splitlines() if "source" in line]
    header = table.splitlines()[0].split(",")
    means = [row[i] for i, name in enumerate(header) if name in ("continual", "interleaved")]
    assert len(means) == 2
    assert means[0] == means[1], "without adaptation the order does not matter"
    assert installed_here() == before, "nothing is left behind in this environment"


@pytest.mark.slow
def test_a_method_from_outside_runs_through_ray(tmp_path: Path) -> None:
    before = installed_here()
    environment = OtherEnvironment(tmp_path / "environment")
    shutil.copytree(EXAMPLE, tmp_path / "package")
    environment.shell("pip install --quiet --no-deps ./package", cwd=tmp_path)
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
    assert "bn-stats" in environment.shell("tta-bench list methods", cwd=elsewhere)
    assert "FAIL" not in environment.shell("tta-bench check bn-stats", cwd=elsewhere)
    environment.shell("tta-bench run mine.yaml", cwd=elsewhere)
    table = environment.shell("tta-bench table --layout long-term --format csv", cwd=elsewhere)
    rows = [line for line in table.splitlines() if "bn-" in line]
    assert len(rows) == 2
    assert rows[0].split(",")[-1] == rows[1].split(",")[-1], "both normalise by the batch"
    assert installed_here() == before, "nothing is left behind in this environment"
