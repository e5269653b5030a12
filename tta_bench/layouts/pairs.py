"""Every method against every other: paired differences with interval and p-value, and the ranks they make."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.layouts.lines import label_of, lines
from tta_bench.layouts.plan import (
    Options,
    Plan,
    Spec,
    accuracy,
    averaged_at,
    chosen_round,
    clean_note,
    rank_of,
    severity_text,
    unmeasured,
)
from tta_bench.layouts.records import Record, RowId, slots
from tta_bench.layouts.types import Column

NOTE = (
    "Row minus column, paired, with its 95 % interval and its p-value; p-values are corrected for the number "
    "of pairs of a group (Holm), intervals are not."
)


def lay_out(layout: str, records: Sequence[Record], options: Options) -> Plan:
    """The plan of a matrix: rows are methods, and so are columns."""
    found = slots(records)
    round_ = chosen_round(layout, records, options.round)
    needs = averaged_at(found, round_)

    def versus(row: RowId) -> Spec:
        key = f"minus {label_of(row)}" + (" (reset)" if row.reset == "domain" else "")
        return Spec(Column(key, f"− {label_of(row)}", "difference"), unmeasured, needs, compares=row)

    methods = dict.fromkeys(line.row for line in lines(layout, records))
    return Plan(
        caption=f"Paired differences of mean accuracy (points) at round {round_}{severity_text(records)}.",
        specs=(
            Spec(Column("accuracy", "Acc.", "accuracy"), accuracy, needs),
            rank_of("accuracy"),
            *map(versus, methods),
        ),
        notes=(NOTE, *clean_note(found)),
    )
