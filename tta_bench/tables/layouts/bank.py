"""Layout `bank`: the number of stored domain vectors, their memory, and the accuracy."""

from __future__ import annotations

import json

import numpy as np
from pandas import DataFrame, Series

from tta_bench.tables.layout import ROW, ColumnSpec, LayoutInput, Measure, TableSpec
from tta_bench.tables.references.reference import Citation
from tta_bench.tables.table import Column, Kind

NOTE = (
    "Vectors: stored at the end, as counted, or by the method's schedule and limit. Bank: these vectors, or "
    "a full bank where their number is not known; one takes the memory by which a full bank exceeds none, "
    "over its limit."
)
MODEL = ["model", "quantizer", "bits", "stream"]


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's table on domain management."""
    round_ = given.round

    def stored(key: str, name: str, kind: Kind, measure: Measure) -> ColumnSpec:
        return ColumnSpec(
            Column(key, name, kind), measure, lambda slots: slots["round"] <= round_, citation=Citation(key)
        )

    return TableSpec(
        caption=f"Stored domain vectors, and mean accuracy (%) at round {round_}{given.severity}.",
        columns=(
            stored("domain_parameters", "Vectors", "count", vectors),
            stored("bank_mib", "Bank (MiB)", "memory", bank_mib(given.cells)),
            given.mean_accuracy("accuracy", "Acc.", round_),
        ),
        notes=(NOTE, *given.clean_note),
    )


def vectors(records: DataFrame, cells: DataFrame) -> Series:
    """Vectors in the bank after the last record, as counted or from the schedule; NaN if unknown."""
    if records.empty:
        return Series(dtype=float, index=records.set_index(ROW).index)
    settings, resets = cells["settings"], cells["reset"]
    groups = records.sort_values(["round", "domain_order"]).groupby(ROW)
    found = {
        key: _vectors(own, settings[cell], resets[cell], cells)
        for key, own in groups
        for cell in own["cell"][:1]
    }
    return Series(found).rename_axis(ROW)


def _vectors(records: DataFrame, settings: dict, reset: str, cells: DataFrame) -> float:
    """The vectors of one cell; of one that is reset after each domain, the most that it held."""
    limit = settings.get("bank_size", 0)
    if limit == 0:
        return 0
    counts = [json.loads(counters).get("stored_vectors") for counters in records["counters"]]
    if None not in counts:
        return max(counts) if reset == "domain" else counts[-1]
    if settings["store"] != "every":
        return np.nan  # stored on detected shifts, which older records do not count
    batches = -(-records["n"] // cells["batch_size"][records["cell"].iloc[0]])
    lasting = batches.max() if reset == "domain" else batches.sum()
    stored = (lasting - 1) // settings["store_every"]
    return stored if settings["bank_policy"] == "keep_all" else min(stored, limit)


def bank_mib(all_cells: DataFrame) -> Measure:
    """A measure: memory of the vectors in the bank; of a full bank if their number is unknown."""
    empty = all_cells[all_cells["settings"].map(lambda settings: settings.get("bank_size") == 0)]
    without = empty.groupby(MODEL)["memory_mib"].last()

    def measure(records: DataFrame, cells: DataFrame) -> Series:
        own = cells.drop_duplicates(ROW).set_index(ROW)
        limit = own["settings"].map(lambda settings: settings.get("bank_size", 0))
        keeps = own["settings"].map(lambda settings: settings.get("bank_policy") == "keep_all")
        stored = vectors(records, cells).reindex(own.index)
        none = without.reindex(own.set_index(MODEL).index).to_numpy()
        each = (own["memory_mib"] - none) / limit.where(limit > 0)
        return (each * stored.where(stored.notna() | keeps, limit)).where(limit > 0, 0.0)

    return measure
