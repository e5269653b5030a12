"""A table for Python: text at a prompt, HTML in a notebook, a DataFrame on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tta_bench.tables.render import render
from tta_bench.tables.render.fitting import to_text_within
from tta_bench.tables.table import Row, Table

if TYPE_CHECKING:
    from pandas import DataFrame

Number = Literal["value", "std", "interval", "rank"]


class TableView:
    """A table that shows itself; `table` is its content as plain data."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __repr__(self) -> str:
        return render(self.table, "text").rstrip("\n")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self.to_html()

    @property
    def notes(self) -> list[str]:
        """The footnotes in the order of their numbers, and the notes of the whole table."""
        return [*self.table.footnotes, *self.table.notes]

    def render(self, format: str) -> str:
        """The table in a format of `tta-bench table --format`."""
        return render(self.table, format)

    def to_text(self, width: int | None = None) -> str:
        """The table for a terminal; lines longer than `width` lose rounds and spreads, or go on below."""
        return render(self.table, "text") if width is None else to_text_within(self.table, width)

    def to_latex(self) -> str:
        """The table for a paper."""
        return render(self.table, "latex")

    def to_markdown(self) -> str:
        """The table in Markdown."""
        return render(self.table, "markdown")

    def to_html(self) -> str:
        """The table as an HTML element."""
        return render(self.table, "html")

    def to_csv(self) -> str:
        """The table as CSV, with standard deviations, intervals and ranks."""
        return render(self.table, "csv")

    def to_frame(self, number: Number = "value") -> DataFrame:
        """A DataFrame with the rows of the table; columns have the keys that CSV and JSON have, too.

        `number` is what each entry is: the value (NaN for a dash), or its std, interval or rank.
        """
        import pandas as pd

        index = [(group.label, _label(row)) for group, row in self.table.rows]
        entries = [[getattr(entry, number) for entry in row.entries] for _, row in self.table.rows]
        made = pd.DataFrame(
            entries,
            index=pd.MultiIndex.from_tuples(index, names=["model", "method"]),
            columns=[column.key for column in self.table.columns],
        )
        return made.infer_objects()


def _label(row: Row) -> str:
    """The label of a row; one with published numbers belongs to the row above."""
    return f"{row.label} (published)" if row.published else row.label
