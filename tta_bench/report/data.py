"""The data of the page: tables of every stream, flags, curves and provenance."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tta_bench import __version__
from tta_bench.report import flags, online
from tta_bench.report.cells import STREAM, fingerprints_of, provenance, stream_name
from tta_bench.report.scenarios import scenario_tables
from tta_bench.report.tables import RowKey, key_of, packed
from tta_bench.storage.store import ResultStore
from tta_bench.tables import frame
from tta_bench.tables.assembly.published import cell_of
from tta_bench.tables.best import SOURCE, of_table
from tta_bench.tables.build import Assembly, assemble
from tta_bench.tables.references import load
from tta_bench.tables.references.reference import Reference
from tta_bench.tables.table import Row, Table, TableError
from tta_bench.tables.ties import NEAREST

if TYPE_CHECKING:
    from pandas import DataFrame


def gather(
    stores: Sequence[ResultStore], reference: str | None = None, allow_mixed: bool = False
) -> dict[str, Any]:
    """Everything the page shows about benchmarks, separately for each of their streams."""
    published = None if reference is None else load(reference)
    tidy, known = frame.load(*stores), _cells(stores)
    if tidy.empty:
        raise TableError("report", "there are no cells", "Run the benchmark first: tta-bench run")
    lists, numbers = fingerprints_of(tidy)
    cells = {key: own | {"fingerprints": numbers[key]} for key, own in provenance(known, tidy).items()}
    streams: dict[str, list[str]] = defaultdict(list)
    for key, (cell, _) in known.items():
        streams[json.dumps([cell.get(name) for name in STREAM])].append(key)
    parts = []
    for keys in streams.values():
        own = tidy if len(streams) == 1 else tidy[tidy["key"].isin(keys)]
        stream = _StreamReport(own, cells, published, allow_mixed)
        parts.append({"name": stream_name(known[keys[0]][0])} | stream.data())
    return {
        "title": " + ".join(store.folder.name for store in stores),
        "version": __version__,
        "reference": None if published is None else published.title,
        "thresholds": {"points": flags.FORGETTING_POINTS, "share": flags.COLLAPSED_SHARE, "nearest": NEAREST},
        "streams": parts,
        "scenarios": scenario_tables(tidy, allow_mixed),
        "fingerprints": lists,
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
        self.cells, self.allow_mixed = cells, allow_mixed
        own = frame.drop_duplicates("key").assign(
            settings=lambda own: own["params"].astype(str).map(json.loads)
        )
        cited = reference is not None and _has_any(reference, own.assign(facet=""))
        self.reference = reference.name if reference is not None and cited else None
        run = sorted(frame["round"][frame["status"] == "ok"].unique().tolist())
        self.rounds: list[int] = run or [int(frame["rounds"].max())]
        whole = self._assembled(frame, "long-term", None)
        self.long_term = whole.table()
        self.rows = flags.own_rows(self.long_term)
        self.row_of = dict(zip(whole.pivot.cells["key"], whole.pivot.cells["row"].tolist(), strict=True))
        self.places = {key_of(group, row): place for place, (group, row) in enumerate(self.rows)}
        self.frame = frame.assign(row=frame["key"].map(self.row_of).astype(int))
        engines = ("engines",) if frame["agreement"].notna().any() else ()
        self.by_round: dict[str, dict[int, Table]] = {
            layout: {} for layout in ("cost", "per-corruption", *engines)
        }
        self.ties: dict[str, dict[int, list[int] | None]] = {}
        self.findings: dict[str, list[dict[str, Any]]] = {}
        for number in self.rounds:
            self._add_round(
                number, frame[frame["round"] == number] if run else frame, number if run else None
            )

    def _assembled(self, shown: DataFrame, layout: str, number: int | None) -> Assembly:
        return assemble(shown, layout, round=number, reference=self.reference, allow_mixed=self.allow_mixed)

    def _add_round(self, number: int, shown: DataFrame, asked: int | None) -> None:
        """The tables of a round and, for each row, the rows of all models near it that are tied with it."""
        cost = self._assembled(shown, "cost", asked)
        self.by_round["cost"][number] = table = cost.table()
        for layout in self.by_round.keys() - {"cost"}:
            self.by_round[layout][number] = self._assembled(shown, layout, asked).table()
        own = [self.places[key_of(*pair)] for pair in flags.own_rows(table)]
        ties = cost.tied("accuracy")
        self.ties[str(number)] = {
            row: None if others is None else [own[other] for other in others]
            for row, others in zip(own, ties, strict=True)
        }
        self.findings[str(number)] = self._findings(table, own, ties)

    def _findings(
        self, cost: Table, own: Sequence[int], ties: list[list[int] | None]
    ) -> list[dict[str, Any]]:
        """For each network the sentence on its best forward-only methods, and the row of the first."""
        baseline = set(self.frame["method"][self.frame["method_plugin"] == SOURCE])
        return [
            {
                "sentence": best.sentence,
                "quantised": best.bits != "FP32",
                "row": None if best.place is None else own[best.place],
            }
            for best in of_table(cost, ties, baseline)
        ]

    def data(self) -> dict[str, Any]:
        """The data of the stream."""
        tables = {
            layout: {str(number): packed(table, self.places) for number, table in found.items()}
            for layout, found in self.by_round.items()
        }
        return {
            "rounds": self.rounds,
            "cited": self.reference is not None,
            "rows": self._rows(),
            "findings": self.findings,
            "ties": self.ties,
            "tables": tables | {"long-term": {"all": packed(self.long_term, self.places)}},
            "online": {str(number): online.curves(self.frame, number) for number in self.rounds},
        }

    def _rows(self) -> list[dict[str, Any]]:
        """The rows, in the order of the tables."""
        curves = flags.curves(self.by_round["per-corruption"])
        by_row = self.frame.groupby("row")
        nonfinite, statuses = by_row["nonfinite_images"].sum(), by_row["status"].unique()
        backprop = by_row["backprop"].any()
        keys, sources, families = self._keys_by_row(), self._sources(), self._families()
        found = []
        for place, (group, row) in enumerate(self.rows):
            key = key_of(group, row)
            source = sources.get(key[:4])
            warnings = [
                *flags.forgetting(self.long_term, row),
                *flags.collapse(curves[key], None if source is None else curves[source]),
                *flags.nonfinite(int(nonfinite[place])),
                *flags.incomplete(list(statuses[place]), self._reasons(row)),
            ]
            facts = {
                "label": row.label,
                "group": group.label,
                "family": families.get(row.method),
                "backprop": bool(backprop[place]),
                "quantization": key.quantization,
                "source": None if source is None else self.places[source],
                "flags": [flag._asdict() for flag in warnings],
                "cells": [self.cells[name] for name in keys[place]],
            }
            found.append(key._asdict() | facts)
        return found

    def _families(self) -> dict[str, str]:
        """What each method with results needs: one pass, several forward passes or backpropagation."""
        ok = self.frame[self.frame["status"] == "ok"]
        ok = ok.assign(source=ok["method_plugin"] == SOURCE)
        most: Any = ok.groupby("method", observed=True)[["source", "backprop", "forwards"]].max().itertuples()
        return {each.Index: _family(each.source, each.backprop, each.forwards) for each in most}

    def _keys_by_row(self) -> dict[int, list[str]]:
        """The keys of the cells of each row."""
        found: dict[int, list[str]] = defaultdict(list)
        for key, row in self.row_of.items():
            found[row].append(key)
        return found

    def _sources(self) -> dict[tuple[str, ...], RowKey]:
        """The first row without adaptation of each quantised model."""
        own = self.frame["row"][self.frame["method_plugin"] == SOURCE].unique()
        keys = [key_of(*self.rows[row]) for row in own]
        return {key[:4]: key for key in reversed(keys)}

    def _reasons(self, row: Row) -> list[str]:
        """Why the average of a row is a dash."""
        average = row.entries[[column.key for column in self.long_term.columns].index("average")]
        marks = [] if average.value is not None else average.marks
        return [self.long_term.footnotes[mark - 1] for mark in marks]


def _family(source: bool, backprop: bool, forwards: float) -> str:
    """What a method needs, from whether it uses backpropagation and its most forward passes per image."""
    if source:
        return "source"
    if backprop:
        return "gradients"
    return "forwards" if forwards > 1 else "one pass"


def _has_any(reference: Reference, cells: DataFrame) -> bool:
    """Whether a reference has a number for any of these cells."""
    models = {row.wanted.model for row in reference.rows}
    known = [cell_of(cell) for cell in cells[cells["model_plugin"].isin(models)].to_dict("records")]
    return any(row.wanted.matches(cell) for row in reference.rows for cell in known)
