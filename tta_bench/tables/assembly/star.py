"""A tidy frame as a star: a table of its cells, and its records with numbers for their cell and slot."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from tta_bench.tables.layout import LayoutInput, Options
from tta_bench.tables.table import TableError

# Facts about a cell; of rows that lack one, others of the cell may have it. With the value if none has it.
OF_THE_CELL: dict[str, Any] = {
    "model": "", "quantizer": "", "method": "", "bits": "", "stream": "", "variant": "", "reset": "never",
    "version": "", "seed": 0, "backprop": None, "memory_mib": np.nan, "packed_mib": np.nan,
    "measured_mib": np.nan, "model_order": 0, "quantizer_order": 0, "method_order": 0, "data": "",
    "model_plugin": "", "method_plugin": "", "params": "{}", "batch_size": 1, "rounds": 1, "identity": "{}",
    "data_note": "", "code": "", "environment": "", "other_code": False, "threads": 0, "engine_note": "",
    "agreement": np.nan, "resident_mib": np.nan,
}  # fmt: skip
OF_THE_RECORD: dict[str, Any] = {
    "round": np.nan, "corruption": None, "severity": 0, "visit": 1, "domain_order": 0, "status": "pending",
    "reason": "", "n": np.nan, "accuracy": np.nan, "forwards": np.nan, "backwards": np.nan,
    "skipped_updates": 0, "skipped_reasons": "{}", "counters": "{}", "fingerprint": None, "top5": np.nan,
    "class_accuracy": np.nan, "ece": np.nan, "seconds": np.nan, "host": "", "device": "",
    "correct_per_batch": None, "images_per_batch": None,
}  # fmt: skip
# Columns that a frame may lack.
OPTIONAL = {
    "identity", "data_note", "code", "environment", "other_code", "threads", "stream", "counters", "top5",
    "class_accuracy", "ece", "seconds", "host", "device", "correct_per_batch", "images_per_batch", "visit",
    "engine_note", "agreement", "resident_mib",
}  # fmt: skip
SLOT = ["round", "corruption", "severity", "facet"]
STOPPED = ("unsupported", "failed")


def star(frame: DataFrame, layout: str, options: Options) -> LayoutInput:
    """The star of a tidy frame, with defaults for missing values."""
    if frame.empty:
        raise TableError("table", "there are no records", "Run the benchmark first: tta-bench run")
    wanted = {"key", *OF_THE_CELL, *OF_THE_RECORD} - OPTIONAL
    if absent := [name for name in ("key", *OF_THE_CELL, *OF_THE_RECORD) if name in wanted - set(frame)]:
        problem = f"the frame lacks the columns {', '.join(absent)}"
        raise TableError("table", problem, "Make it with tta_bench.load_results")
    cells = _cells(frame)
    records = _visits_joined(
        _filled(frame, OF_THE_RECORD).assign(cell=cells.index.get_indexer(pd.Index(frame["key"])))
    )
    cells = cells.reset_index().assign(facet="")
    records, slots = with_slots(cells, records)
    return LayoutInput(layout, cells, records, slots, options, listed="visit" in frame)


def _cells(frame: DataFrame) -> DataFrame:
    """The facts of each cell, by key in the order of the frame; with the parameters as a dictionary."""
    own = [name for name in OF_THE_CELL if name in frame]
    cells = frame.groupby("key", sort=False, observed=True)[own].first()
    cells = _filled(
        cells.astype({name: object for name in own if cells[name].dtype == "category"}), OF_THE_CELL
    )
    cells["version"] = cells["version"].astype(str)
    settings = cells["params"].map(json.loads)
    unseeded = [
        json.dumps({k: v for k, v in each.items() if k != "seed"}, sort_keys=True) for each in settings
    ]
    return cells.assign(settings=settings, unseeded=unseeded, stated=cells["identity"].map(json.loads))


def _filled(frame: DataFrame, defaults: dict[str, Any]) -> DataFrame:
    """The columns that have a default, which stands for missing values; a column with gaps holds floats."""
    found: dict[str, Any] = {}
    for name, default in defaults.items():
        if name not in frame:
            found[name] = Series([default] * len(frame), frame.index)
            continue
        values = frame[name]
        if default is not None and default == default and values.isna().any():
            values = values.astype(object).where(values.notna(), default)
        whole = isinstance(default, int) and not isinstance(default, bool)
        found[name] = values.astype(int) if whole and values.dtype.kind != "i" else values
    return DataFrame(found, frame.index, copy=False)


def _visits_joined(records: DataFrame) -> DataFrame:
    """The records with one for all visits of a domain in a round; rates are means over its images."""
    if (records["visit"] == 1).all():
        return records
    rates = ["accuracy", "forwards", "backwards", "top5", "class_accuracy", "ece"]
    weighted = records.assign(**{name: records[name] * records["n"] for name in rates})
    totals = [*rates, "n", "seconds", "skipped_updates"]
    # A domain is failed if any visit is, and not run if any is not.
    weighted = weighted.assign(rank=records["status"].map({"ok": 0, "pending": 1}).astype(float).fillna(2))
    groups = weighted.sort_values("rank", ascending=False, kind="stable").groupby(
        ["cell", "round", "corruption", "severity"], sort=False, observed=True, dropna=False
    )
    joined = groups.first().assign(
        **groups[totals].sum(min_count=1), domain_order=groups["domain_order"].min()
    )
    joined = joined.assign(correct_per_batch=None, **{name: joined[name] / joined["n"] for name in rates})
    return joined.reset_index()


def with_slots(cells: DataFrame, records: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The records with the number of their slot (−1 where only a status is known), and the slots."""
    facets, names = cells["facet"].factorize()
    placed = records.assign(facet=facets[records["cell"]])
    found = placed.groupby(SLOT, sort=False, observed=True)
    number = found.ngroup().fillna(-1).to_numpy(int)  # −1 without a round or a domain
    slots = found["domain_order"].min().reset_index()
    slots = slots.astype({"corruption": object, "round": int})
    slots["facet"] = np.asarray(names, object)[slots["facet"]]
    order = slots.sort_values(["round", "domain_order", "corruption", "severity", "facet"]).index.to_numpy()
    new = np.empty(len(order) + 1, int)
    new[order], new[-1] = np.arange(len(order)), -1
    return records.assign(slot=new[number]), slots.loc[order, SLOT].reset_index(drop=True)
