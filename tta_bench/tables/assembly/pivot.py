"""The records of a table pivoted to arrays [rows, seeds, slots], and what its columns need of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pandas import DataFrame

from tta_bench.tables.assembly.checks import refuse_mixed
from tta_bench.tables.assembly.rows import refuse_doubles, with_rows
from tta_bench.tables.assembly.star import STOPPED
from tta_bench.tables.layout import ROW, ColumnSpec, LayoutInput
from tta_bench.tables.statistics import Batches, Evidence

LONGEST_REASON = 200  # characters; the results folder has the whole text
DOMAIN = ["corruption", "severity", "facet"]


@dataclass(frozen=True)
class Needed:
    """What a column needs of each row, where that is complete, and where it is not part of the benchmark."""

    slots: np.ndarray
    complete: np.ndarray  # [rows]
    absent: np.ndarray  # [rows]


class Pivot:
    """The cells and records of a table by row, seed and slot; rows are in the order of the table."""

    def __init__(self, given: LayoutInput, columns: Sequence[ColumnSpec]) -> None:
        given, self.rows = with_rows(given)
        self.listed = given.listed
        self.slots, self.cells, records = given.slots, given.cells, given.records
        self.seeds = sorted(self.cells["seed"].unique())
        shown = np.logical_or.reduce([self.needed(spec) for spec in columns])
        records = records[np.append(shown, True)[records["slot"]]] if not shown.all() else records
        records = records.assign(
            ok=(records["status"] == "ok").to_numpy() & (records["slot"] >= 0).to_numpy(),
            row=self.cells["row"].to_numpy()[records["cell"]],
        )
        self.mixed = refuse_mixed(given, records)
        refuse_doubles(given, self.rows)
        self.stopped = records[records["status"].isin(STOPPED)].join(self.cells[["seed", "facet"]], on="cell")
        self.groups = list(dict.fromkeys(row.group for row in self.rows))
        self.present = self._present(records)
        self.scope = self._scope()
        self.images = records["n"].dropna().unique()
        self.ok = self._sorted(records)
        self._domains: dict[bytes, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def _present(self, records: DataFrame) -> np.ndarray:
        """The slots of which a row has a record, run or pending, [rows, slots]."""
        found = np.zeros(
            (len(self.rows), len(self.slots) + 1), bool
        )  # the last is for records without a slot
        found[records["row"], records["slot"]] = True
        return found[:, :-1]

    def _scope(self) -> np.ndarray:
        """The slots that each row has to fill: those of its group, [rows, slots]."""
        order = {group: i for i, group in enumerate(self.groups)}
        group = np.array([order[row.group] for row in self.rows])
        found = np.zeros((len(order), len(self.slots)), bool)
        np.logical_or.at(found, group, self.present)
        return found[group]

    def _sorted(self, records: DataFrame) -> DataFrame:
        """The records with a result, sorted, so that sums do not depend on the order of the frame."""
        ok = records[records["ok"]].drop(columns="ok")
        seed = np.searchsorted(self.seeds, self.cells["seed"])
        facet = self.cells["facet"].to_numpy()
        ok = ok.assign(seed=seed[ok["cell"]], threads=self.cells["threads"].to_numpy()[ok["cell"]])
        if any(self.cells["facet"] != ""):
            ok = ok.assign(facet=facet[ok["cell"]])
        order = np.lexsort([ok["slot"], ok["seed"], ok["row"]])
        return ok if (np.diff(order) == 1).all() else ok.iloc[order]

    # -- arrays ---------------------------------------------------------------------------------------

    def pivoted(self, name: str, dtype: Any = float) -> np.ndarray:
        """A column of the records with a result as an array [rows, seeds, slots]."""
        if dtype is object:
            records = self.ok.assign(
                **{name: self.ok[name].astype(object).where(self.ok[name].notna(), None)}
            )
        else:
            records = self.ok
        wide = records.pivot(index=ROW, columns="slot", values=name)
        found = np.full(
            (len(self.rows), len(self.seeds), len(self.slots)), np.nan if dtype is float else None, dtype
        )
        row, seed = (wide.index.get_level_values(level).to_numpy() for level in ROW)
        found[row[:, None], seed[:, None], wide.columns.to_numpy()[None]] = wide.to_numpy(dtype)
        return found

    @cached_property
    def accuracy(self) -> np.ndarray:
        return self.pivoted("accuracy")

    @cached_property
    def n(self) -> np.ndarray:
        return self.pivoted("n")

    @cached_property
    def batches(self) -> np.ndarray:
        return self.pivoted("correct_per_batch", object)

    @cached_property
    def shared_batches(self) -> np.ndarray:
        return self.pivoted("images_per_batch", object)

    @cached_property
    def fingerprints(self) -> np.ndarray:
        return self.pivoted("fingerprint", object)

    @cached_property
    def done(self) -> np.ndarray:
        """Which results there are."""
        found = np.zeros((len(self.rows), len(self.seeds), len(self.slots)), bool)
        found[self.ok["row"], self.ok["seed"], self.ok["slot"]] = True
        return found

    @cached_property
    def expected(self) -> np.ndarray:
        """Which results the benchmark has, as far as is known, [rows, slots]."""
        if self.listed:
            return self.present
        found = np.zeros((len(self.rows), len(self.slots)), bool)
        kinds = self.cells.assign(domains=[str(stated.get("domains")) for stated in self.cells["stated"]])
        for (_, rounds, facet), members in kinds.groupby(["domains", "rounds", "facet"]):
            domains = members["stated"].iloc[0].get("domains")
            places = zip(self.slots["corruption"], self.slots["severity"], strict=True)
            own = np.array(
                [domains is None or [name, severity] in domains for name, severity in places], bool
            )
            later = (self.slots["round"] > rounds) | (self.slots["facet"] != facet)
            found[members["row"].unique()] |= own & ~later.to_numpy()
        return found

    def of_facets(self, facets: Sequence[str]) -> np.ndarray:
        """The slots of some facets; all without facets."""
        return self.slots["facet"].isin(facets).to_numpy() if facets else np.ones(len(self.slots), bool)

    def is_stopped(self, facets: Sequence[str]) -> np.ndarray:
        """Which rows have a failed or unsupported cell, in some facets, [rows]."""
        rows = self.stopped["row"][self.stopped["facet"].isin(facets)] if facets else self.stopped["row"]
        return np.isin(np.arange(len(self.rows)), rows)

    @cached_property
    def complete(self) -> np.ndarray:
        """The rows of which every seed has all its results, and none has failed."""
        missing = (self.scope & self.expected)[:, None] & ~self.done
        return ~missing.any(axis=(1, 2)) & ~self.is_stopped(())

    @cached_property
    def stops(self) -> dict[int, list[tuple[int, str, str]]]:
        """For each row with a failed or unsupported cell: the seed and facet of each, and the reason."""
        found: dict[int, list[tuple[int, str, str]]] = {}
        stopped: Any = self.stopped.drop_duplicates(["row", "seed", "facet"]).itertuples()
        for each in stopped:
            found.setdefault(each.row, []).append((each.seed, each.facet, _reason(each.status, each.reason)))
        return found

    # -- columns --------------------------------------------------------------------------------------

    def needed(self, spec: ColumnSpec) -> np.ndarray:
        """The slots that a column needs, [slots]."""
        return spec.needs(self.slots).to_numpy(bool) & self.of_facets(spec.facets)

    def need(self, spec: ColumnSpec, scope: np.ndarray) -> Needed:
        """What a column needs of the slots in its scope, [rows, slots]."""
        slots = scope & self.needed(spec)
        present: Any = self.cells.groupby("row")["facet"].agg(set) if spec.facets else []
        absent = np.array([not found.issuperset(spec.facets) for found in present], bool)
        absent = (slots & ~self.expected).any(axis=1) | (absent if spec.facets else False)
        if self.listed and self.needed(spec).any():  # streams of other rows have these slots
            absent |= ~slots.any(axis=1)
        lacking = (slots[:, None] & ~self.done).any(axis=(1, 2))
        return Needed(slots, slots.any(axis=1) & ~lacking & ~self.is_stopped(spec.facets), absent)

    def measured(self, spec: ColumnSpec) -> np.ndarray:
        """The numbers of a column, NaN where there is none, [rows, seeds]."""
        found = np.full((len(self.rows), len(self.seeds)), np.nan)
        if spec.measure is None:
            return found
        cells = self.cells.assign(seed=np.searchsorted(self.seeds, self.cells["seed"]))
        cells = cells[cells["facet"].isin(spec.facets)] if spec.facets else cells
        records = self.ok[self.needed(spec)[self.ok["slot"]]]
        values = spec.measure(records, cells).dropna().astype(float)
        found[values.index.get_level_values("row"), values.index.get_level_values("seed")] = values
        return found

    def evidence(self, row: int, slots: np.ndarray) -> Evidence:
        """The accuracy of a row in some slots by seed and domain, averaged over rounds."""
        chosen, starts, counts = self._by_domain(slots)
        scores = np.add.reduceat(self.accuracy[row][:, chosen], starts, axis=1) / counts
        images = int(np.maximum.reduceat(self.n[row][:, chosen], starts, axis=1).sum())
        if len(self.seeds) > 1:
            return Evidence(scores, images)
        batches = [self._batches(row, own) for own in np.split(chosen, starts[1:])]
        known = [each for each in batches if each is not None]
        return Evidence(scores, images, tuple(known) if len(known) == len(batches) else None)

    def repeated(self, row: int, slots: np.ndarray) -> Evidence:
        """The accuracy of a row in some slots by facet and domain, averaged over seeds."""
        chosen = self.slots[slots].assign(
            accuracy=self.accuracy[row][:, slots].mean(axis=0), n=self.n[row][:, slots].max(axis=0)
        )
        domains = chosen.groupby(["facet", "corruption", "severity"], sort=False)
        scores = domains["accuracy"].mean().unstack("facet").T
        images = domains["n"].max().unstack("facet").max(axis=1).sum()  # all facets have the same
        alike = bool(scores.notna().all(axis=None))
        return Evidence(scores.to_numpy(float), int(images) if alike else 0)

    def _by_domain(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Some slots with the rounds of a domain side by side, where each domain starts, and its rounds."""
        if (place := slots.tobytes()) not in self._domains:
            found = [own.index.to_numpy() for _, own in self.slots[slots].groupby(DOMAIN, sort=False)]
            counts = np.array([len(own) for own in found])
            self._domains[place] = (np.concatenate(found), np.cumsum(counts) - counts, counts)
        return self._domains[place]

    def _batches(self, row: int, slots: np.ndarray) -> Batches | None:
        """The correct predictions in each batch of a domain; rounds with the same batches are averaged."""
        images = int(self.n[row, 0, slots[0]])
        size = int(self.sizes[row])
        count = -(-images // size)
        correct = self.batches[row, 0, slots]
        if any(sizes is not None for sizes in self.shared_batches[row, 0, slots]):
            return None  # batches with images of other domains are not independent of those of other domains
        if any(hits is None or len(hits) != count for hits in correct) or not count:
            return None
        hits = np.array(list(correct), float)
        if len(set(self.fingerprints[row, 0, slots])) == 1:
            hits = hits.mean(axis=0, keepdims=True)
        sizes = np.full(count, size)
        sizes[-1] = images - size * (count - 1)
        return Batches(hits, sizes)

    @cached_property
    def sizes(self) -> np.ndarray:
        """The batch size of each row."""
        return self.cells.groupby("row")["batch_size"].first().to_numpy()

    def first_cells(self, facets: Sequence[str] = ()) -> DataFrame:
        """The first cell of each row."""
        cells = self.cells[self.cells["facet"].isin(facets)] if facets else self.cells
        return cells.drop_duplicates("row").set_index("row")


def _reason(status: str, reason: str) -> str:
    """Status and reason on one line; of a traceback, its last line."""
    text = reason.strip()
    if status == "failed":
        text = text.splitlines()[-1] if text else ""
    return f"{status}: {short(text) or 'no reason recorded'}"


def short(text: str) -> str:
    """A text on one line, cut if it is too long for a footnote."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"
