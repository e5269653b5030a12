"""`tta-bench new`: packages that install, keep their contract and run as they were generated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.helpers.other_environment import OtherEnvironment
from tta_bench import scaffold
from tta_bench.cli import app
from tta_bench.errors import UserError

NAMES = {
    "method": "my-method",
    "quantizer": "my-quantizer",
    "model": "my-model",
    "timm-model": "my-timm",
    "data": "none",
    "corruption": "my-corners",
    "scenario": "my-turns",
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A generated package of each kind."""
    place = tmp_path_factory.mktemp("packages")
    return {kind: scaffold.create(kind, name, place) for kind, name in NAMES.items()}


@pytest.fixture(scope="module")
def environment(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> OtherEnvironment:
    """An environment in which all of them are installed."""
    found = OtherEnvironment(tmp_path_factory.mktemp("environment"))
    folders = " ".join(f"-e '{folder}'" for folder in packages.values())
    found.shell(f"pip install --quiet {folders}", cwd=tmp_path_factory.getbasetemp())
    return found


def test_a_package_has_all_that_one_needs(packages: dict[str, Path]) -> None:
    files = {str(path.relative_to(packages["method"])) for path in packages["method"].rglob("*.*")}
    own = {"tta_bench_my_method.py", "tests/test_tta_bench_my_method.py"}
    assert files >= {"pyproject.toml", "README.md", "benchmark.yaml"} | own
    texts = [p.read_text() for f in packages.values() for p in f.rglob("*.*") if "egg-info" not in str(p)]
    words = ("plugin-", "PluginClass", "plugin_object")
    assert not any(word in text for word in words for text in texts), "a word was not filled in"
    assert "class NoneData(Corruptible)" in (packages["data"] / "tta_bench_none.py").read_text()


def test_templates_import_nothing_but_the_api(packages: dict[str, Path]) -> None:
    imports = {
        line.split()[1]
        for folder in packages.values()
        for line in next(folder.glob("*.py")).read_text().splitlines()
        if line.startswith(("from tta_bench", "import tta_bench"))
    }
    assert imports == {"tta_bench.api"}


@pytest.mark.slow
def test_what_is_generated_keeps_its_contract(
    packages: dict[str, Path], environment: OtherEnvironment, tmp_path: Path
) -> None:
    tests = " ".join(f"'{folder / 'tests'}'" for folder in packages.values())
    said = environment.shell(f"pytest -q -p no:cacheprovider {tests}", cwd=tmp_path)
    assert f"{len(NAMES)} passed" in said


RUN = """
import sys
from typer.testing import CliRunner
from tta_bench.cli import app
common = ["--engine", "local", "--limit", "16", "--quiet"]
for file in sys.argv[1:]:
    some = [] if file == "together.yaml" else ["--only", "method=source"]
    outcome = CliRunner().invoke(app, ["run", file, *common, *some])
    assert outcome.exit_code == 0, (file, outcome.output, outcome.exception)
"""


@pytest.mark.slow
def test_benchmarks_run_as_generated_and_all_kinds_together(
    packages: dict[str, Path], environment: OtherEnvironment, tmp_path: Path
) -> None:
    together = {
        "name": "together",
        "data": {"use": "none", "images": 40, "saved_as_jpeg": True},
        "models": ["my-model"],
        "quantizers": ["fp32", {"use": "my-quantizer", "bits": "W4A32"}],
        "methods": ["source", "my-method", {"use": "tent", "name": "TENT"}],
        "stream": {
            "corruptions": ["clean", "fog", "my-corners"],
            "rounds": 2,
            "batch_size": 16,
            "scenario": "my-turns",
        },
    }
    (tmp_path / "run.py").write_text(RUN)
    (tmp_path / "together.yaml").write_text(yaml.safe_dump(together))
    generated = [
        packages[kind] for kind in ("quantizer", "model", "data", "corruption", "scenario")
    ]  # a method's: test_first_method.py
    files = " ".join(f"'{folder / 'benchmark.yaml'}'" for folder in generated)
    table = environment.shell(
        f"python run.py {files} together.yaml; tta-bench table --layout long-term --format json", cwd=tmp_path
    )
    rows = {(group["bits"], row["method"]) for group in json.loads(table)["groups"] for row in group["rows"]}
    assert rows == {(bits, m) for bits in ("FP32", "W4A32") for m in ("source", "my-method", "TENT")}
    names = {folder.name.removeprefix("tta-bench-") for folder in generated}
    assert {path.name for path in (tmp_path / "results").iterdir()} == names | {"together"}


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("methode", "mine", 'Did you mean "method"?'),
        ("method", "my_method", "Use letters, digits and single dashes"),
        ("method", "../escape", "Use letters, digits and single dashes"),
        ("method", "-x", "Use letters, digits and single dashes"),
        ("method", "1st", "a letter first"),
        ("method", "m" * 41, "40 characters at most"),
        ("method", "on", "no YAML keyword"),
        ("method", "Tent", '"tent" in methods is already used by tta-bench'),
        ("data", "fog", '"fog" in corruptions is already used'),
        ("method", "methods", "tta_bench_methods is installed already"),
    ],
)
def test_names_that_will_not_do_are_refused(kind: str, name: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        scaffold.create(kind, name, tmp_path)
    assert expected in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    there = tmp_path / "tta-bench-mine"
    there.mkdir()
    with pytest.raises(UserError, match="exists already"):
        scaffold.create("method", "mine", tmp_path)
    assert not list(there.iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written.*--into"):
        scaffold.create("method", "mine", tmp_path / "file")


def test_the_command_says_what_comes_next(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["new", "quantizer", "mine", "--into", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    assert "tta-bench check mine" in outcome.output
    assert (tmp_path / "tta-bench-mine" / "tta_bench_mine.py").exists()
