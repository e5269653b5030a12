"""Tables in a terminal: no line is too long, no number changes, and what is left out is named."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from tests.tables.test_render import GOLDEN, LAYOUTS, table_of
from tta_bench.tables.build import build
from tta_bench.tables.render import render
from tta_bench.tables.render.fitting import to_text_within
from tta_bench.tables.table import Row, Table, printed


@pytest.fixture(scope="module")
def long_term() -> Table:
    """Ten rounds with intervals: the golden frame, with its first round repeated."""
    frame = pd.read_csv(GOLDEN / "frame.csv")
    first = frame[frame["round"].isna() | (frame["round"] == 1)]
    rounds = [first.assign(round=first["round"] * number, rounds=10) for number in range(1, 11)]
    table = build(pd.concat(rounds).drop_duplicates(), "long-term")

    def spread(row: Row) -> Row:
        wide = zip(row.entries, table.columns, strict=True)
        return replace(
            row, entries=tuple(replace(e, interval=1.6) if c.kind == "accuracy" else e for e, c in wide)
        )

    return replace(table, groups=tuple(replace(g, rows=tuple(map(spread, g.rows))) for g in table.groups))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_line_is_longer_than_the_terminal(layout: str, width: int) -> None:
    text = to_text_within(table_of(layout), width)
    assert [line for line in text.splitlines() if len(line) > width] == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_wide_terminal_gets_the_whole_table(layout: str) -> None:
    whole = render(table_of(layout), "text")
    assert to_text_within(table_of(layout), 10_000) == whole


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_number_is_lost_where_columns_continue_below(layout: str) -> None:
    """All but rounds in the middle and spreads is there."""
    table = table_of(layout)
    shown = to_text_within(table, 80)
    for _, row in table.rows:
        for entry, column in zip(row.entries, table.columns, strict=True):
            if entry.value is not None and not isinstance(entry.value, bool) and column.kind != "rank":
                assert column.key.startswith("round_") or printed(entry.value, column.kind) in shown


def test_rounds_in_the_middle_are_left_out_first(long_term: Table) -> None:
    text = to_text_within(long_term, 120)
    header = next(line for line in text.splitlines() if line.startswith("Model"))
    kept = [word for word in header.split() if word.isdigit()]
    assert kept[0] == "1"
    assert kept[-1] == "10"
    assert 3 <= len(kept) < 10
    assert "±" in text, "spreads stay as long as three rounds fit"
    gone = [str(number) for number in range(1, 11) if str(number) not in kept]
    assert f"Left out, as the lines would be too long: rounds {', '.join(gone)}." in " ".join(text.split())


def test_spreads_are_left_out_next(long_term: Table) -> None:
    text = to_text_within(long_term, 90)
    body = text[: text.index("¹")]
    assert "±" not in body
    assert "the ± of means" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 90
