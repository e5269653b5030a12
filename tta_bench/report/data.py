"""What the page is about, as plain data: tables of every stream, flags, curves and provenance."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tta_bench import __version__, frame
from tta_bench.layouts.lines import Line, lines
from tta_bench.layouts.records import Record, read
from tta_bench.reference import Reference, cell_of, load
from tta_bench.report import flags, online
from tta_bench.report.cells import STREAM, Fingerprints, provenance, stream_name
from tta_bench.report.tables import RowKey, key_of, packed
from tta_bench.store import ResultStore
from tta_bench.table import Row, Table, TableError, build, tied

if TYPE_CHECKING:
    from pandas import DataFrame

SOURCE = "source"  # the plugin that adapts nothing: what gains are measured against


def gather(
    stores: Sequence[ResultStore], reference: str | None = None, allow_mixed: bool = False
) -> dict[str, Any]:
    """Everything the page shows about benchmarks, a part for each stream they have."""
    told, prints = _cells(stores), Fingerprints()
    cells = {key: provenance(cell, store, prints) for key, (cell, store) in told.items()}
    streams: dict[str, list[str]] = defaultdict(list)
    for key, (cell, _) in told.items():
        streams[json.dumps([cell[name] for name in STREAM])].append(key)
    published = None if reference is None else load(reference)
    tidy = frame.load(*stores)
    if tidy.empty:
        raise TableError("report", "there are no cells", "Run the benchmark first: tta-bench run")
    parts = []
    for keys in streams.values():
        part = _Part(tidy[tidy["key"].isin(keys)], cells, published, allow_mixed)
        parts.append({"name": stream_name(told[keys[0]][0])} | part.data())
    return {
        "title": " + ".join(store.folder.name for store in stores),
        "version": __version__,
        "reference": None if published is None else published.title,
        "thresholds": {"points": flags.FORGETTING_POINTS, "share": flags.COLLAPSED_SHARE},
        "streams": parts,
        "fingerprints": prints.lists,
    }


def _cells(stores: Sequence[ResultStore]) -> dict[str, tuple[dict[str, Any], ResultStore]]:
    """Cells by key, each with the store that has it; of two stores, the first."""
    found: dict[str, tuple[dict[str, Any], ResultStore]] = {}
    for store in stores:
        for cell in store.manifest()["cells"]:
            found.setdefault(cell["key"], (cell, store))
    return found


class _Part:
    """One stream: its tables and all that belongs to their rows."""

    def __init__(
        self,
        frame: DataFrame,
        cells: Mapping[str, dict[str, Any]],
        reference: Reference | None,
        allow_mixed: bool,
    ) -> None:
        self.frame, self.cells, self.allow_mixed = frame, cells, allow_mixed
        records = read(frame)
        self.reference = reference if reference is not None and _has_any(reference, records) else None
        self.keys = {r.key: _key(line) for line in lines("report", records) for r in line.records}
        self.sources = [self.keys[record.key] for record in records if record.method_plugin == SOURCE]
        run = sorted({int(number) for number in frame["round"][frame["status"] == "ok"]})
        self.rounds: list[int] = run or [int(frame["rounds"].max())]
        self.long_term = self._build("long-term", None)
        self.by_round = {
            layout: {number: self._build(layout, number if run else None) for number in self.rounds}
            for layout in ("cost", "per-corruption")
        }
        self.rows = flags.own_rows(self.long_term)
        self.places = {key_of(group, row): place for place, (group, row) in enumerate(self.rows)}

    def _build(self, layout: str, number: int | None) -> Table:
        name = None if self.reference is None else self.reference.name
        shown = self._shown(number)
        return build(shown, layout, round=number, reference=name, allow_mixed=self.allow_mixed)

    def _shown(self, number: int | None) -> DataFrame:
        """The records of one round, and what cells say of themselves."""
        rounds = self.frame["round"]
        return self.frame if number is None else self.frame[rounds.isna() | (rounds == number)]

    def _ties(self, number: int) -> dict[int, list[int] | None]:
        """For each row, the rows of all models whose accuracy in a round cannot be told from its own."""
        own = [self.places[key_of(*pair)] for pair in flags.own_rows(self.by_round["cost"][number])]
        found = tied(self._shown(number), "cost", "accuracy")
        return {
            row: None if others is None else [own[other] for other in others]
            for row, others in zip(own, found, strict=True)
        }

    def data(self) -> dict[str, Any]:
        """The stream as the page has it."""
        tables = {
            layout: {str(number): packed(table, self.places) for number, table in found.items()}
            for layout, found in self.by_round.items()
        }
        of_cells = {name: self.places[key] for name, key in self.keys.items()}
        return {
            "rounds": self.rounds,
            "cited": self.reference is not None,
            "rows": self._rows(),
            "ties": {str(number): self._ties(number) for number in self.rounds},
            "tables": tables | {"long-term": {"all": packed(self.long_term, self.places)}},
            "online": {str(number): online.curves(self.frame, number, of_cells) for number in self.rounds},
        }

    def _rows(self) -> list[dict[str, Any]]:
        """The rows, in the order of the tables."""
        curves = flags.curves(self.by_round["per-corruption"])
        found = []
        for group, row in self.rows:
            key = key_of(group, row)
            source = next((other for other in self.sources if other[:4] == key[:4]), None)
            mine = [name for name, of in self.keys.items() if of == key]
            warnings = [
                *flags.forgetting(self.long_term, row),
                *flags.collapse(curves[key], None if source is None else curves[source]),
                *flags.nonfinite(self._nonfinite(mine)),
                *flags.incomplete(*self._states(mine, row)),
            ]
            facts = {
                "label": row.label,
                "group": group.label,
                "quantization": key.bits if key.bits == "FP32" else f"{key.quantizer} {key.bits}",
                "source": None if source is None else self.places[source],
                "flags": [flag._asdict() for flag in warnings],
                "cells": [self.cells[name] for name in mine],
            }
            found.append(key._asdict() | facts)
        return found

    def _nonfinite(self, keys: Sequence[str]) -> int:
        counts = self.frame[self.frame["key"].isin(keys)]["nonfinite_images"]
        return int(counts.dropna().sum())

    def _states(self, keys: Sequence[str], row: Row) -> tuple[list[str], list[str]]:
        """The states of a row's cells, and why its average is a dash."""
        states = self.frame[self.frame["key"].isin(keys)]["status"].unique()
        average = row.entries[[column.key for column in self.long_term.columns].index("average")]
        marks = [] if average.value is not None else average.marks
        return list(states), [self.long_term.footnotes[mark - 1] for mark in marks]


def _key(line: Line) -> RowKey:
    row = line.row
    return RowKey(*line.group, row.method, row.variant, row.reset, line.versions, row.settings)


def _has_any(reference: Reference, records: Sequence[Record]) -> bool:
    """Whether a publication has any number for any of these cells."""
    cells = {record.key: cell_of(record) for record in records}
    wanted = {id(row.wanted): row.wanted for row in reference.rows}
    return any(w.matches(cell) for w in wanted.values() for cell in cells.values())
