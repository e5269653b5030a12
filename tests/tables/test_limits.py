"""Limits of memory and passes: `table --max-memory …` and `tta-bench best`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.command import tta_bench
from tests.helpers.report_results import DEMO, Method, write
from tta_bench.report import gather
from tta_bench.storage.store import ResultStore
from tta_bench.tables import frame as frames
from tta_bench.tables.best import best_methods
from tta_bench.tables.limits import Limits, answer, narrowed, rows_of


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    write(DEMO, folder)
    return folder


def test_the_best_row_keeps_the_limits_and_no_better_one_does(results: Path) -> None:
    tidy = frames.load(ResultStore(results, DEMO.name))
    rows = rows_of(tidy)
    for limits in (Limits(), Limits(forwards=1), Limits(forward_only=True), Limits(rows[0].memory_mib)):
        fitting = [row for row in rows if limits.allow(row)]
        best = max(fitting, key=lambda row: row.accuracy)
        assert best.name in answer(tidy, limits) or "too little data" in answer(tidy, limits)
        kept, note = narrowed(tidy, limits)
        assert {row.key for row in rows_of(kept)} == {row.key for row in fitting}
        assert limits.words in note
    assert answer(tidy, Limits(0.001)) == "Within 0.001 MiB: no row fits."


def test_the_command_line_prints_the_sentence_and_narrows_tables(results: Path) -> None:
    place = ["--results", results]
    tidy = frames.load(ResultStore(results, DEMO.name))
    expected = answer(tidy, Limits(None, 1, True))
    assert tta_bench("best", "--max-forwards", "1", "--forward-only", *place).stdout.strip() == expected
    shown = tta_bench("table", "--layout", "cost", "--forward-only", *place)
    assert "Rows within no backpropagation;" in shown.stderr
    refused = tta_bench("table", "--layout", "cost", "--max-memory", "0.001", *place)
    assert refused.returncode == 2
    assert "Loosen the limits" in refused.stderr


def test_a_method_with_backpropagation_that_made_no_backward_pass_is_not_forward_only(tmp_path: Path) -> None:
    """EATA skips the batches that it finds unreliable, possibly all of them."""
    eata = Method("EATA", "eata", 70, memory_mib=700, backprop=True)
    store = write(replace(DEMO, methods=(*DEMO.methods, eata)), tmp_path)
    tidy, limits = frames.load(store), Limits(forward_only=True)
    assert "EATA" in answer(tidy, Limits())
    assert "EATA" not in answer(tidy, limits)
    assert "EATA" not in set(narrowed(tidy, limits)[0]["method"])
    assert all("EATA" not in best.methods for best in best_methods(tidy))
    rows = [row for row in gather([store])["streams"][0]["rows"] if row["label"] == "EATA"]
    assert [(row["backprop"], row["family"]) for row in rows] == [(True, "gradients")] * 4
