"""Layouts: each turns records into a TableSpec. A new layout is a module here and an entry in LAYOUTS."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tta_bench.tables.assembly.layout_spec import Layout
from tta_bench.tables.layouts import (
    ablation,
    bank,
    cost,
    datasets,
    gap,
    long_term,
    pairs,
    per_corruption,
    reset_vs_continual,
    sweep,
)

LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "per-corruption": per_corruption.lay_out,
        "long-term": long_term.lay_out,
        "cost": cost.lay_out,
        "pairs": pairs.lay_out,
        "gap": gap.lay_out,
        "ablation": ablation.lay_out,
        "sweep": sweep.lay_out,
        "bank": bank.lay_out,
        "datasets": datasets.lay_out,
        "reset-vs-continual": reset_vs_continual.lay_out,
    }
)
