"""Layout `ablation`: accuracy in the first and last round, passes and memory, with a tick per part."""

from __future__ import annotations

from tta_bench.tables.assembly.layout_spec import LayoutInput, TableSpec, difference, memory, passes, tick
from tta_bench.tables.assembly.records import Slot, TidyRecord

LEGEND = (
    "ZO: zeroth-order optimiser. DRL: continual domain reprogramming learning (stored domain vectors). "
    "DKM: domain knowledge management (of the two most similar vectors, one is dropped)."
)


def lay_out(given: LayoutInput) -> TableSpec:
    """The paper's ablation tables: the first round, the last round, and the gain between them."""
    last = given.round

    def both(slot: Slot) -> bool:
        return slot.round in (1, last) and given.averaged(slot)

    gain = difference("gain", "Gain", lambda r: r.slot and r.slot.round, (last, 1), both)
    parts = (
        tick("zeroth_order", "ZO", zeroth_order),
        tick("domain_learning", "DRL", reuses_domains),
        tick("domain_management", "DKM", manages_domains),
    )
    has_parts = any(map(zeroth_order, given.records))
    return TableSpec(
        caption=f"Mean accuracy (%) at the first and the last round{given.severity}.",
        columns=(
            passes("forwards", "#FP", both),
            *given.backprop(),
            *(parts if has_parts else ()),
            *(given.mean_accuracy(f"round_{n}", f"R{n}", n) for n in sorted({1, last})),
            *((gain,) if last > 1 else ()),
            memory("memory_mib", "Memory (MiB)"),
        ),
        notes=(
            "#FP: forward passes per image, counted.",
            *((LEGEND,) if has_parts else ()),
            *given.clean_note,
        ),
    )


def zeroth_order(record: TidyRecord) -> bool:
    """Whether a method estimates gradients from perturbations: it has the parameters for them."""
    return {"c", "distribution"} <= record.settings.keys()


def reuses_domains(record: TidyRecord) -> bool:
    """Whether a method starts from stored domain vectors."""
    return zeroth_order(record) and record.settings.get("bank_size", 0) > 0


def manages_domains(record: TidyRecord) -> bool:
    """Whether a method with a full bank drops one of its two most similar vectors."""
    return reuses_domains(record) and record.settings.get("bank_policy") == "similar"
