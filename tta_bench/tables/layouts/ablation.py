"""Layout `ablation`: accuracy in the first and last round, passes and memory, with a tick per part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tta_bench.tables.layout import LayoutInput, TableSpec, difference, memory, passes, tick

LEGEND = (
    "ZO: zeroth-order optimiser. DRL: continual domain reprogramming learning (stored domain vectors). "
    "DKM: domain knowledge management (of the two most similar vectors, one is dropped)."
)


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's ablation tables: the first round, the last round, and the gain between them."""
    last = given.round
    both = given.average([1, last])
    parts = (
        tick("zeroth_order", "ZO", zeroth_order),
        tick("domain_learning", "DRL", reuses_domains),
        tick("domain_management", "DKM", manages_domains),
    )
    has_parts = given.cells["settings"].map(zeroth_order).any()
    return TableSpec(
        caption=f"Mean accuracy (%) at the first and the last round{given.severity}.",
        columns=(
            passes("forwards", "#FP", both),
            *given.backprop(),
            *(parts if has_parts else ()),
            *(given.mean_accuracy(f"round_{n}", f"R{n}", n) for n in sorted({1, last})),
            *((difference("gain", "Gain", "round", (last, 1), both),) if last > 1 else ()),
            memory("memory_mib", "Memory (MiB)"),
        ),
        notes=(
            "#FP: forward passes per image, counted.",
            *((LEGEND,) if has_parts else ()),
            *given.clean_note,
        ),
        shown=given.average(last),
    )


def zeroth_order(settings: Mapping[str, Any]) -> bool:
    """Whether a method estimates gradients from perturbations: it has the parameters for them."""
    return {"c", "distribution"} <= settings.keys()


def reuses_domains(settings: Mapping[str, Any]) -> bool:
    """Whether a method starts from stored domain vectors."""
    return zeroth_order(settings) and settings.get("bank_size", 0) > 0


def manages_domains(settings: Mapping[str, Any]) -> bool:
    """Whether a method with a full bank drops one of its two most similar vectors."""
    return reuses_domains(settings) and settings.get("bank_policy") == "similar"
