"""The data of the page: tables of every stream, flags, curves and provenance."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tta_bench import __version__
from tta_bench.report import flags, online
from tta_bench.report.cells import STREAM, Fingerprints, provenance, stream_name
from tta_bench.report.tables import RowKey, key_of, packed
from tta_bench.storage.store import ResultStore
from tta_bench.tables import frame
from tta_bench.tables.assembly.published import cell_of
from tta_bench.tables.assembly.records import TidyRecord, read
from tta_bench.tables.assembly.row_records import RowRecords, by_row
from tta_bench.tables.best import SOURCE, of_table
from tta_bench.tables.build import build, tied
from tta_bench.tables.reference import Reference, load
from tta_bench.tables.table import Row, Table, TableError

if TYPE_CHECKING:
    from pandas import DataFrame


def gather(
    stores: Sequence[ResultStore], reference: str | None = None, allow_mixed: bool = False
) -> dict[str, Any]:
    """Everything the page shows about benchmarks, separately for each of their streams."""
    known, prints = _cells(stores), Fingerprints()
    cells = {key: provenance(cell, store, prints) for key, (cell, store) in known.items()}
    streams: dict[str, list[str]] = defaultdict(list)
    for key, (cell, _) in known.items():
        streams[json.dumps([cell[name] for name in STREAM])].append(key)
    published = None if reference is None else load(reference)
    tidy = frame.load(*stores)
    if tidy.empty:
        raise TableError("report", "there are no cells", "Run the benchmark first: tta-bench run")
    parts = []
    for keys in streams.values():
        stream = _StreamReport(tidy[tidy["key"].isin(keys)], cells, published, allow_mixed)
        parts.append({"name": stream_name(known[keys[0]][0])} | stream.data())
    return {
        "title": " + ".join(store.folder.name for store in stores),
        "version": __version__,
        "reference": None if published is None else published.title,
        "thresholds": {"points": flags.FORGETTING_POINTS, "share": flags.COLLAPSED_SHARE},
        "streams": parts,
        "fingerprints": prints.lists,
    }


def _cells(stores: Sequence[ResultStore]) -> dict[str, tuple[dict[str, Any], ResultStore]]:
    """Cells by key, each with its store; with the first, if several have it."""
    found: dict[str, tuple[dict[str, Any], ResultStore]] = {}
    for store in stores:
        for cell in store.manifest()["cells"]:
            found.setdefault(cell["key"], (cell, store))
    return found


class _StreamReport:
    """The tables of one stream, and the data about their rows."""

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
        self.keys = {r.key: _key(row) for row in by_row("report", records) for r in row.records}
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
        """The records of one round, and those without a round."""
        rounds = self.frame["round"]
        return self.frame if number is None else self.frame[rounds.isna() | (rounds == number)]

    def _findings(self, number: int) -> list[dict[str, Any]]:
        """For each network the sentence on its best forward-only methods, and the row of the first."""
        table = self.by_round["cost"][number]
        own = [self.places[key_of(*pair)] for pair in flags.own_rows(table)]
        ties = tied(self._shown(number), "cost", "accuracy")
        baseline = set(self.frame["method"][self.frame["method_plugin"] == SOURCE])
        return [
            {
                "sentence": best.sentence,
                "quantised": best.bits != "FP32",
                "row": None if best.place is None else own[best.place],
            }
            for best in of_table(table, ties, baseline)
        ]

    def _ties(self, number: int) -> dict[int, list[int] | None]:
        """For each row, the rows of all models that are tied with it in a round."""
        own = [self.places[key_of(*pair)] for pair in flags.own_rows(self.by_round["cost"][number])]
        found = tied(self._shown(number), "cost", "accuracy")
        return {
            row: None if others is None else [own[other] for other in others]
            for row, others in zip(own, found, strict=True)
        }

    def data(self) -> dict[str, Any]:
        """The data of the stream."""
        tables = {
            layout: {str(number): packed(table, self.places) for number, table in found.items()}
            for layout, found in self.by_round.items()
        }
        of_cells = {name: self.places[key] for name, key in self.keys.items()}
        return {
            "rounds": self.rounds,
            "cited": self.reference is not None,
            "rows": self._rows(),
            "findings": {str(number): self._findings(number) for number in self.rounds},
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
            records = self.frame[self.frame["key"].isin(mine)]
            warnings = [
                *flags.forgetting(self.long_term, row),
                *flags.collapse(curves[key], None if source is None else curves[source]),
                *flags.nonfinite(int(records["nonfinite_images"].dropna().sum())),
                *flags.incomplete(list(records["status"].unique()), self._reasons(row)),
            ]
            facts = {
                "label": row.label,
                "group": group.label,
                "family": self._family(row.method),
                "quantization": key.bits if key.bits == "FP32" else f"{key.quantizer} {key.bits}",
                "source": None if source is None else self.places[source],
                "flags": [flag._asdict() for flag in warnings],
                "cells": [self.cells[name] for name in mine],
            }
            found.append(key._asdict() | facts)
        return found

    def _family(self, method: str) -> str | None:
        """What a method needs: one pass, several forward passes or backward passes; None if unknown."""
        mine = self.frame[(self.frame["method"] == method) & (self.frame["status"] == "ok")]
        if mine.empty:
            return None
        if (mine["method_plugin"] == SOURCE).any():
            return "source"
        if mine["backwards"].max() > 0:
            return "gradients"
        return "forwards" if mine["forwards"].max() > 1 else "one pass"

    def _reasons(self, row: Row) -> list[str]:
        """Why the average of a row is a dash."""
        average = row.entries[[column.key for column in self.long_term.columns].index("average")]
        marks = [] if average.value is not None else average.marks
        return [self.long_term.footnotes[mark - 1] for mark in marks]


def _key(row: RowRecords) -> RowKey:
    method, variant, reset, _, settings = row.id
    return RowKey(*row.group, method, variant, reset, row.versions, settings)


def _has_any(reference: Reference, records: Sequence[TidyRecord]) -> bool:
    """Whether a reference has a number for any of these cells."""
    cells = {record.key: cell_of(record) for record in records}
    return any(row.wanted.matches(cell) for row in reference.rows for cell in cells.values())
