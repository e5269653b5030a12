"""`tta-bench plan` and `tta-bench memory`: what a run costs, told before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tta_bench import accounts, memory, registry
from tta_bench.api import Target
from tta_bench.cautions import cautions
from tta_bench.describe import Description, columns
from tta_bench.disk import needed
from tta_bench.errors import Unsupported, UserError
from tta_bench.grid import Cell
from tta_bench.parameters import configured, settings_of
from tta_bench.plan import passes, tasks

MIB = 2**20


def describe(name: str, cells: Sequence[Cell]) -> Description:
    """Cells, tasks, passes, disk and memory of a grid."""
    cost, disk, warnings = passes(cells), needed(cells), cautions(cells)
    rows = [_row(cell) for cell in {accounts.facts(c): c for c in cells}.values()]
    ratio = cost.executed / cost.naive if cost.naive else 1.0
    data = {
        "name": name,
        "cells": len(cells),
        "tasks": len(tasks(cells)),
        "records": sum(cell.records_expected for cell in cells),
        "passes": cost.executed,
        "naive_passes": cost.naive,
        "disk_bytes": disk._asdict(),
        "memory": rows,
        "warnings": warnings,
    }
    text = (
        f"{name}: {data['cells']} cells in {data['tasks']} tasks, {data['records']} records.\n"
        f"Batch passes (a backward counts as two): {cost.executed}; one run for every cell and round "
        f"would need {cost.naive} ({ratio:.2f} of it).\n"
        f"Disk, about: images {disk.images / 1e9:.1f} GB, weights {disk.weights / 1e9:.2f} GB, "
        f"results {disk.results / 1e6:.1f} MB, features kept between rounds {disk.features / 1e9:.2f} GB a "
        f"worker.\n\n{columns(rows)}" + "".join(f"\n\nWarning: {text}" for text in warnings)
    )
    return Description(text, data)


def describe_memory(
    model: str,
    quantizer: str,
    bits: str | None,
    method: str,
    settings: Sequence[str],
    batch_size: int,
) -> Description:
    """The three memory columns of one combination, and what they are made of."""
    source = configured("models", model, {})
    quantiser = configured("quantizers", quantizer, {"bits": bits} if bits else {})
    target = Target(model, source.family, quantiser.bits)
    presets = registry.load("methods", method).presets(target)
    adapter = configured("methods", method, presets | settings_of(settings))
    try:
        report = memory.account(source, quantiser, adapter, batch_size)
    except Unsupported as reason:
        pair = f"{method} on {model} {quantiser.bits}"
        raise UserError(f"{pair}: {reason}. Choose another method, model or quantizer.") from None
    data = {
        "model": model,
        "bits": quantiser.bits,
        "method": method,
        "batch_size": batch_size,
        **_mib(report),
        "breakdown_mib": {k: round(v / MIB, 2) for k, v in report.breakdown.items()},
    }
    lines = [f"{key}: {value}" for key, value in data.items() if key != "breakdown_mib"]
    lines += [f"  {key}: {value} MiB" for key, value in data["breakdown_mib"].items()]
    return Description("\n".join(lines), data)


def _row(cell: Cell) -> dict[str, Any]:
    names = cell.labels
    row = {"model": names.model, "quantizer": names.quantizer, "bits": cell.bits, "method": names.method}
    try:
        report = accounts.of(cell)
    except Unsupported as reason:
        return row | {"memory_mib": None, "packed_mib": None, "note": str(reason)}
    found = _mib(report)
    return row | {k: found[k] for k in ("memory_mib", "packed_mib")} | {"note": ""}


def _mib(report: memory.MemoryReport) -> dict[str, float | None]:
    columns = ("memory_mib", "packed_mib", "measured_mib")
    found = {name: getattr(report, name) for name in columns}
    return {name: None if mib is None else round(mib, 1) for name, mib in found.items()}
