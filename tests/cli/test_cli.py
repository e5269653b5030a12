"""The command line: quick answers, clear mistakes, machine-readable output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.command import tta_bench


@pytest.mark.parametrize(
    "command", [["--help"], ["run", "--help"], ["list"], ["table", "--help"], ["status", "--help"]]
)
def test_quick_commands_import_neither_torch_nor_ray(command: list[str]) -> None:
    code = (
        "import sys\nfrom tta_bench.cli import app\n"
        f"sys.argv = ['tta-bench', *{command!r}]\n"
        "try:\n    app()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'ray', 'timm'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 0, outcome.stderr


def test_table_and_status_import_neither_torch_nor_ray(tmp_path: Path) -> None:
    code = (
        "import sys\nimport tta_bench.tables.build, tta_bench.tables.frame, tta_bench.tables.render\n"
        "import tta_bench.storage.status\n"
        "heavy = {'torch', 'ray', 'timm'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "nowhere.yaml"], "cannot be read"),
        (["table", "--results", "nowhere"], "no results here"),
        (["run", "benchmark.yaml", "--device", "gpu"], '--device gpu: unknown. Use "auto"'),
        (["run", "benchmark.yaml", "--engine", "local", "--ray-address", "head:6379"], "Add --engine ray"),
        (["status", "--watch", "--ray-address", "http://head:8265"], "Repeat the command without --watch"),
        (["list", "method"], 'Did you mean "methods"?'),
        (["memory", "--model", "vit-bb"], 'Did you mean "vit-b"?'),
        (["memory", "--model", "vit-micro", "--method", "tent", "--set", "lrr=1"], "unknown field"),
        (["check", "tnet"], 'Did you mean "tent"?'),
    ],
)
def test_mistakes_end_with_a_message_and_two(arguments: list[str], expected: str) -> None:
    outcome = tta_bench(*arguments)
    assert outcome.returncode == 2, outcome.stderr
    assert expected in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_mistake_ends_a_process_with_two() -> None:
    command = [sys.executable, "-m", "tta_bench.cli", "list", "method"]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 2
    assert 'Did you mean "methods"?' in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_list_shows_every_group_and_facts() -> None:
    listed = json.loads(tta_bench("list", "--json").stdout)
    assert {"source", "tent"} <= set(listed["methods"])
    assert len(listed["corruptions"]) == 19
    rows = json.loads(tta_bench("list", "methods", "--long", "--json").stdout)["methods"]
    tent = next(row for row in rows if row["name"] == "tent")
    assert tent["#FP/#BP"] == "1/1"
    assert "BROKEN" not in json.dumps(rows)


def test_plan_and_memory_answer_without_data(write_yaml: object) -> None:
    path = write_yaml()  # type: ignore[operator]
    plan = json.loads(tta_bench("plan", path, "--json").stdout)
    assert plan["cells"] == 6
    assert plan["passes"] < plan["naive_passes"]
    found = json.loads(tta_bench("memory", "--model", "vit-micro", "--method", "tent", "--json").stdout)
    assert found["memory_mib"] > found["packed_mib"] > 0


def test_only_narrows_and_says_when_nothing_is_left(write_yaml: object) -> None:
    path = write_yaml()  # type: ignore[operator]
    plan = json.loads(tta_bench("plan", path, "--only", "method=tent", "--json").stdout)
    assert plan["cells"] == 2
    outcome = tta_bench("plan", path, "--only", "method=zzz")
    assert outcome.returncode == 2
    assert "no cell matches" in outcome.stderr
