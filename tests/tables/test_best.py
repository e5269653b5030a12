"""The sentence on the best forward-only methods: by hand, and from a results folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.helpers.report_results import DEMO, write
from tta_bench.tables import frame as frames
from tta_bench.tables.best import BestMethods, best_methods, of_table
from tta_bench.tables.table import Column, Row, RowGroup, Table, TableEntry

COLUMNS = (
    Column("backprop", "BP", "flag"),
    Column("accuracy", "Acc.", "accuracy"),
    Column("memory_mib", "Memory (MiB)", "memory"),
)
Numbers = tuple[str, bool, float | None, float]  # method, BP, accuracy, MiB


def table(*rows: Numbers, published: Sequence[str] = ()) -> Table:
    made = [
        Row(name, name, "", "", "1", tuple(map(TableEntry, numbers)), published=name in published)
        for name, *numbers in rows
    ]
    group = RowGroup("vit-micro W8A8", "vit-micro", "ptq4vit", "W8A8", tuple(made))
    return Table("cost", "", "", COLUMNS, (group,))


def found(*rows: Numbers, ties: Sequence[list[int] | None], published: Sequence[str] = ()) -> BestMethods:
    (only,) = of_table(table(*rows, published=published), ties, {"source"})
    return only


SOURCE: Numbers = ("source", False, 50.0, 2.4)
ZOA: Numbers = ("ZOA", False, 52.34, 2.5)


def test_one_method_is_best() -> None:
    best = found(SOURCE, ("FOA", False, 51.0, 2.4), ZOA, ties=[[], [], []])
    assert best.sentence == (
        "On vit-micro W8A8 the best forward-only method is ZOA (52.3 %, +2.3 over Source, at 2.50 MiB)."
    )
    assert best.place == 2


def test_methods_with_backpropagation_do_not_take_part() -> None:
    best = found(SOURCE, ZOA, ("TENT", True, 60.0, 9.0), ties=[[], [], []])
    assert best.methods == ("ZOA",)


def test_tied_methods_share_the_place_up_to_the_first_that_is_not_tied() -> None:
    rows = [SOURCE, ZOA, ("V1", False, 52.2, 2.5), ("FOA", False, 51.0, 2.4), ("T3A", False, 50.5, 2.4)]
    best = found(*rows, ties=[[], [2, 4], [1], [], [1]])
    assert best.methods == ("ZOA", "V1"), "T3A is tied, but FOA before it is not"
    assert "are ZOA and V1, which are tied (ZOA: 52.3 %" in best.sentence


def test_equal_accuracies_are_ordered_by_memory() -> None:
    best = found(SOURCE, ("big", False, 52.0, 5.0), ("small", False, 52.0, 3.0), ties=[[], [2], [1]])
    assert best.methods == ("small", "big")


def test_nothing_is_above_source() -> None:
    best = found(("source", False, 55.0, 2.4), ZOA, ties=[[], []])
    assert best.sentence == "On vit-micro W8A8 no forward-only method is more accurate than Source."
    assert best.place is None


def test_too_little_data_is_said() -> None:
    best = found(SOURCE, ZOA, ("V1", False, 52.0, 2.5), ties=[None, None, None])
    assert "most accurate" in best.sentence
    assert "too little data" in best.sentence


def test_published_rows_and_dashes_are_no_candidates() -> None:
    paper: Numbers = ("paper", False, 99.0, 2.4)
    best = found(SOURCE, paper, ("FOA", False, None, 2.4), ZOA, ties=[[], [], []], published=["paper"])
    assert best.methods == ("ZOA",)
    assert best.place == 2, "published rows have no place"


@pytest.mark.parametrize("round", [1, 3])
def test_a_results_folder_has_one_finding_for_each_network(tmp_path: Path, round: int) -> None:
    tidy = frames.load(write(DEMO, tmp_path))
    groups = best_methods(tidy, round)
    assert [(best.group, best.methods[0]) for best in groups] == [
        (f"{model} {bits}", "FOA" if round == 1 else best.methods[0])
        for (model, _), bits, best in zip(
            [model for model in DEMO.models for _ in DEMO.bits], DEMO.bits * 2, groups, strict=True
        )
    ]
    assert all(best.gain is not None and best.gain > 0 for best in groups)
