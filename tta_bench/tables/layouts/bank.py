"""Layout `bank`: the number of stored domain vectors, their memory, and the accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from tta_bench.tables.assembly.layout_spec import ColumnSpec, LayoutInput, Measure, TableSpec, memory_mib
from tta_bench.tables.assembly.records import GroupId, TidyRecord
from tta_bench.tables.reference import Citation
from tta_bench.tables.table import Column, Kind

NOTE = (
    "Vectors: stored at the end, as counted, or by the method's schedule and limit. Bank: these vectors, or "
    "a full bank where their number is not known; one takes the memory by which a full bank exceeds none, "
    "over its limit."
)


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's table on domain management."""
    round_, without = given.round, memory_without(given.records)

    def stored(key: str, name: str, kind: Kind, measure: Measure) -> ColumnSpec:
        column = Column(key, name, kind)
        return ColumnSpec(column, measure, lambda slot: slot.round <= round_, citation=Citation(key))

    return TableSpec(
        caption=f"Stored domain vectors, and mean accuracy (%) at round {round_}{given.severity}.",
        columns=(
            stored("domain_parameters", "Vectors", "count", vectors),
            stored("bank_mib", "Bank (MiB)", "memory", lambda found: bank_mib(found, without)),
            given.mean_accuracy("accuracy", "Acc.", round_),
        ),
        notes=(NOTE, *given.clean_note),
    )


def memory_without(records: Sequence[TidyRecord]) -> dict[GroupId, float]:
    """The memory (MiB) of each model with a method whose bank is empty, if the table has such a row."""
    return {
        record.group: record.memory_mib
        for record in records
        if record.settings.get("bank_size") == 0 and record.memory_mib is not None
    }


def vectors(records: Sequence[TidyRecord]) -> float | None:
    """Vectors in the bank after these records, as counted or from the schedule; None if unknown."""
    settings = records[0].settings
    limit = settings.get("bank_size", 0)
    if limit == 0:
        return 0
    if all("stored_vectors" in record.counted for record in records):
        return _counted(records)
    if settings["store"] != "every" or any(record.n is None for record in records):
        return None  # stored on detected shifts, which older records do not count
    batches = [-(-(record.n or 0) // record.batch_size) for record in records]
    lasting = max(batches) if records[0].reset == "domain" else sum(batches)
    stored = (lasting - 1) // settings["store_every"]
    return stored if settings["bank_policy"] == "keep_all" else min(stored, limit)


def _counted(records: Sequence[TidyRecord]) -> float:
    """The mean over seeds of the vectors after the last domain; with resets, of the largest number."""
    by_seed: dict[int, list[TidyRecord]] = {}
    for record in records:
        by_seed.setdefault(record.seed, []).append(record)
    if records[0].reset == "domain":
        return mean(max(each.counted["stored_vectors"] for each in of_seed) for of_seed in by_seed.values())
    last = (max(of_seed, key=_time) for of_seed in by_seed.values())
    return mean(record.counted["stored_vectors"] for record in last)


def _time(record: TidyRecord) -> tuple[int, int]:
    """The position of a record in its stream, for sorting."""
    return (record.slot.round if record.slot else 0, record.domain_order)


def bank_mib(records: Sequence[TidyRecord], without: Mapping[GroupId, float]) -> float | None:
    """Memory of the vectors in the bank; of a full bank if their number is unknown."""
    settings, full = records[0].settings, memory_mib(records)
    limit, none = settings.get("bank_size", 0), without.get(records[0].group)
    if limit == 0:
        return 0
    stored = vectors(records)
    if stored is None and settings["bank_policy"] != "keep_all":
        stored = limit
    if full is None or none is None or stored is None:
        return None
    return (full - none) / limit * stored
