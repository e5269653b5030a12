"""`tta-bench verify`: random domains computed once more, alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.helpers.misbehaving import install
from tta_bench.cli import app
from tta_bench.storage.store import ResultStore

pytestmark = pytest.mark.usefixtures("no_bytes")
Write = Callable[..., Path]
METHODS = ["source", "t3a", {"use": "zoa", "reset": "domain"}]
ENTRY_POINTS = "[tta_bench.methods]\npatches-torch = misbehaving.meddling:PatchesTorch\n"


@pytest.fixture
def results(write_yaml: Write, tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    file = write_yaml(methods=METHODS, quantizers=["uniform"])
    outcome = CliRunner().invoke(app, ["run", str(file), "--results", str(folder), "--quiet"])
    assert outcome.exit_code == 0, outcome.output
    return folder


def verified(results: Path, *flags: str) -> tuple[int, dict[str, object]]:
    outcome = CliRunner().invoke(app, ["verify", "--results", str(results), "--json", *flags])
    return outcome.exit_code, json.loads(outcome.stdout)


def test_what_a_run_recorded_is_found_again(results: Path) -> None:
    code, found = verified(results, "--cells", "9")
    assert (code, found["differ"]) == (0, 0)
    rows = found["findings"]
    assert isinstance(rows, list)
    assert {row["cell"].split(".")[2] for row in rows} == {"source", "t3a", "zoa"}
    assert verified(results, "--cells", "1")[1]["domains"] in (1, 2), "one domain, or T3A's stream up to it"


def test_a_number_that_was_changed_is_found(results: Path) -> None:
    store = ResultStore(results, "small")
    for path in store.records_folder.glob("*source*.jsonl"):
        lines = []
        for line in path.read_text().splitlines():
            record = json.loads(line.rpartition("\t")[0])
            text = json.dumps(record | {"correct": record["correct"] + 1}, separators=(",", ":"))
            lines.append(f"{text}\t{zlib.crc32(text.encode()):08x}\n")
        path.write_text("".join(lines))
    code, found = verified(results, "--cells", "9")
    assert code == 1
    assert found["differ"] == 1
    rows = found["findings"]
    assert isinstance(rows, list)
    assert "correct was" in rows[0]["result"]
    assert ".source." in rows[0]["cell"]


@pytest.mark.slow
def test_what_no_guard_sees_is_found(tmp_path: Path, write_yaml: Write) -> None:
    """A method that replaces a function of PyTorch ruins the cells after it; alone, they come out right."""
    plugins = install(tmp_path / "plugins", ENTRY_POINTS)
    file = write_yaml(methods=["patches-torch", "source"], quantizers=["fp32"])

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "tta_bench.cli", *map(str, arguments), "--results", tmp_path / "r"]
        return subprocess.run(command, env=os.environ | {"PYTHONPATH": str(plugins)}, capture_output=True)

    assert call("run", file).returncode == 0
    for seed in range(10):  # one cell in each process: what it patches ends with it
        outcome = call("verify", "--cells", "1", "--seed", str(seed), "--json")
        (row, *_) = json.loads(outcome.stdout)["findings"]
        if ".source." in row["cell"]:
            assert (outcome.returncode, row["result"] == "equal") == (1, False)
            return
    raise AssertionError("Source was never drawn")


def test_nothing_to_verify_is_told(write_yaml: Write, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["verify", "--results", str(tmp_path)])
    assert "no results here" in str(outcome.exception)
