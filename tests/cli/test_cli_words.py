"""Words of the command line and of its messages: one word for one thing, a place for every problem."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tta_bench import config, grid
from tta_bench.cli import app
from tta_bench.config.yaml import read_yaml
from tta_bench.errors import UserError
from tta_bench.execution import interrupt, time_limit
from tta_bench.grid import Cell
from tta_bench.tables import references
from tta_bench.tables.render import FORMATS, render
from tta_bench.tables.table import Table

Write = Callable[..., Path]


# -- YAML ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "name: a\ndata: [b,\nc: d\n",
            "line 4: not valid YAML: while parsing a flow sequence (begun in line 2)",
        ),
        (
            "name: a\nseeds: {\n  a: 1,\n  a: 2}\n",
            'line 4: not valid YAML: key "a" is given twice, first in line 3',
        ),
        ("a: &x 1\n\nb: *x\n", "line 3: not valid YAML: aliases"),
        ("a: 1\nb: 2025-01-01\n", "line 2: not valid YAML: timestamp is not supported"),
        ("a: 1\n\n\nb: \x07\n", "line 4: not valid YAML: character U+0007 is not allowed"),
        (f"a: 1\nb: {'9' * 5000}\n", "line 2: not valid YAML: Exceeds the limit"),
        ("a: 1\nb: " + "[" * 5000, "line 2: not valid YAML: it is nested too deeply"),
        ("a: b: c\n", "line 1: not valid YAML: mapping values are not allowed here"),
        ("a: 1\n---\nb: 2\n", "line 2: not valid YAML: expected a single document"),
    ],
)
def test_a_yaml_error_names_its_file_and_line(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "benchmark.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_yaml(path)
    assert str(error.value).startswith(f"{path}: {told}")
    assert "unicode string" not in str(error.value)


def test_a_references_yaml_error_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("a,b\n")
    (tmp_path / "mine.yaml").write_text("title: a\ntables: [\n")
    with pytest.raises(UserError, match=r"mine\.csv: mine\.yaml, line 3: not valid YAML"):
        references.load(str(tmp_path / "mine.csv"))


# -- --only, --format, --output ---------------------------------------------------------------------


@pytest.fixture
def cells(write_yaml: Write) -> list[Cell]:
    """Source, BN-Adapt and TENT at FP32 and W8A8."""
    return grid.expand(config.load(write_yaml()))


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        ([], 6),
        (["method=tent"], 2),
        (["method=tent", "method=source"], 4),
        (["method=tent", "method=source", "bits=FP32"], 2),
        (["method=tent", "bits=FP32", "bits=W8A8"], 2),
        (["method=t*", "method=tent"], 2),
    ],
)
def test_only_means_either_for_one_key_and_all_for_several(
    texts: list[str], count: int, cells: list[Cell]
) -> None:
    kept = grid.only(cells, texts)
    assert len(kept) == count
    assert kept == [cell for cell in cells if cell in kept], "each once, in the order of the file"


def test_only_refuses_what_matches_nothing(cells: list[Cell]) -> None:
    with pytest.raises(UserError, match="--only method=zzz: no cell matches"):
        grid.only(cells, ["method=tent", "method=zzz"])
    some = [cell for cell in cells if cell.bits == "FP32" or cell.method.use == "source"]
    with pytest.raises(UserError, match="--only bits=W8A8 --only method=tent: no cell matches all of it"):
        grid.only(some, ["bits=W8A8", "method=tent"])


def test_a_plan_takes_only_twice(write_yaml: Write) -> None:
    words = ["plan", str(write_yaml()), "--only", "method=source", "--only", "method=bn-adapt", "--json"]
    assert json.loads(CliRunner().invoke(app, words).stdout)["cells"] == 4


@pytest.mark.parametrize(("word", "format"), [("tex", "latex"), ("md", "markdown"), ("txt", "text")])
def test_a_format_is_known_by_its_extension(word: str, format: str) -> None:
    table = Table("cost", "tab:a", "A caption", (), ())
    assert render(table, word) == FORMATS[format](table)


@pytest.mark.parametrize("command", ["report", "tune", "figure"])
def test_the_file_to_write_is_output_everywhere(command: str) -> None:
    assert "--output" in CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
    refused = CliRunner().invoke(app, [command, "x", "--out", "y"])
    assert refused.exit_code == 2
    assert "--output" in refused.stderr


# -- what is not there ------------------------------------------------------------------------------


def test_memory_of_an_unsupported_pair_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["memory", "--model", "vit-micro", "--quantizer", "uniform", "--bits", "W8A8", "--method", "tent"]
    refusal = CliRunner().invoke(app, words).exception
    assert isinstance(refusal, UserError)
    assert str(refusal).startswith("tent on vit-micro W8A8: needs gradients")
    assert str(refusal).endswith("Choose another method, model or quantizer.")


def test_a_time_limit_that_cannot_be_kept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    time_limit.check(None)
    time_limit.check(1.0)
    monkeypatch.delattr(signal, "SIGALRM")
    time_limit.check(None)
    with pytest.raises(UserError, match=r"run\.cell_minutes: a time limit needs Linux or macOS\. Leave"):
        time_limit.check(1.0)


def test_a_time_limit_and_ctrl_c_belong_to_the_main_thread() -> None:
    told: list[object] = []

    def elsewhere() -> None:
        with interrupt.Interrupt(print) as stop:
            told.append(stop())
        try:
            time_limit.check(1.0)
        except UserError as error:
            told.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert told[0] is False
    assert "a time limit needs the main thread" in str(told[1])
