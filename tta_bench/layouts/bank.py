"""How a bank of domain vectors is kept: how many it holds at the end, what they take, what they bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from tta_bench.layouts.plan import (
    Cite,
    Options,
    Plan,
    Spec,
    accuracy,
    averaged_at,
    chosen_round,
    clean_note,
    fact,
    severity_text,
)
from tta_bench.layouts.records import GroupId, Record, Slot, slots
from tta_bench.layouts.types import Column

NOTE = (
    "Vectors: stored at the end, as counted, or by the method's schedule and limit. Bank: these vectors, or "
    "a full bank where their number is not known; one takes the memory by which a full bank exceeds none, "
    "over its limit."
)


def lay_out(layout: str, records: Sequence[Record], options: Options) -> Plan:
    """The plan of the paper's table on domain management."""
    found = slots(records)
    round_ = chosen_round(layout, records, options.round)
    without = memory_without(records)

    def until(slot: Slot) -> bool:
        return slot.round <= round_

    return Plan(
        caption=f"Stored domain vectors, and mean accuracy (%) at round {round_}{severity_text(records)}.",
        specs=(
            Spec(
                Column("domain_parameters", "Vectors", "count"),
                vectors,
                until,
                cites=Cite("domain_parameters"),
            ),
            Spec(
                Column("bank_mib", "Bank (MiB)", "memory"),
                lambda records: bank_mib(records, without),
                until,
                cites=Cite("bank_mib"),
            ),
            Spec(
                Column("accuracy", "Acc.", "accuracy"),
                accuracy,
                averaged_at(found, round_),
                cites=Cite("accuracy", "average", round_),
            ),
        ),
        notes=(NOTE, *clean_note(found)),
    )


def memory_without(records: Sequence[Record]) -> dict[GroupId, float]:
    """Memory (MiB) of a model with the method but no bank, where a row says so."""
    return {
        record.group: record.memory_mib
        for record in records
        if record.settings.get("bank_size") == 0 and record.memory_mib is not None
    }


def vectors(records: Sequence[Record]) -> float | None:
    """How many vectors are in the bank after these records, if they or its schedule tell."""
    settings = records[0].settings
    limit = settings.get("bank_size", 0)
    if limit == 0:
        return 0
    if all("stored_vectors" in record.counted for record in records):
        return _counted(records)
    if settings["store"] != "every" or any(record.n is None for record in records):
        return None  # on detected shifts, which older records do not count
    batches = [-(-(record.n or 0) // record.batch_size) for record in records]
    lasting = max(batches) if records[0].reset == "domain" else sum(batches)
    stored = (lasting - 1) // settings["store_every"]
    return stored if settings["bank_policy"] == "keep_all" else min(stored, limit)


def _counted(records: Sequence[Record]) -> float:
    """The mean over seeds of the vectors after the last domain; if it forgets in between, of the most."""
    by_seed: dict[int, list[Record]] = {}
    for record in records:
        by_seed.setdefault(record.seed, []).append(record)
    if records[0].reset == "domain":
        return mean(max(each.counted["stored_vectors"] for each in of_seed) for of_seed in by_seed.values())
    last = (max(of_seed, key=_time) for of_seed in by_seed.values())
    return mean(record.counted["stored_vectors"] for record in last)


def _time(record: Record) -> tuple[int, int]:
    """Where in its stream a record was made."""
    return (record.slot.round if record.slot else 0, record.domain_order)


def bank_mib(records: Sequence[Record], without: Mapping[GroupId, float]) -> float | None:
    """Memory of the vectors in the bank; of a full one where their number is not known."""
    settings, full = records[0].settings, fact("memory_mib")(records)
    limit, none = settings.get("bank_size", 0), without.get(records[0].group)
    if limit == 0:
        return 0
    stored = vectors(records)
    if stored is None and settings["bank_policy"] != "keep_all":
        stored = limit
    if full is None or none is None or stored is None:
        return None
    return (full - none) / limit * stored
