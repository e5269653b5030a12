"""One column per set of images: several benchmarks side by side."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.layouts.plan import Cite, Options, Plan, Spec, accuracy, averaged_at, chosen_round
from tta_bench.layouts.records import Record, slots
from tta_bench.layouts.types import Column


def lay_out(layout: str, records: Sequence[Record], options: Options) -> Plan:
    """The plan of the paper's table on further datasets; each is shown at its own last round."""
    names = list(dict.fromkeys(record.data for record in records))
    faceted = [record.on(record.data) for record in records]
    specs = [_spec(layout, name, [r for r in faceted if r.facet == name], options) for name in names]
    return Plan(
        caption="Accuracy (%) at the last round on each dataset.",
        specs=tuple(specs),
        records=faceted,
    )


def _spec(layout: str, name: str, records: Sequence[Record], options: Options) -> Spec:
    """The column of one dataset: the mean over its domains."""
    round_ = chosen_round(layout, records, options.round)
    counts = averaged_at(slots(records), round_)
    return Spec(
        Column(name, name, "accuracy"),
        accuracy,
        lambda slot: slot.facet == name and counts(slot),
        facets=(name,),
        cites=Cite("accuracy", "average", round_),
    )
