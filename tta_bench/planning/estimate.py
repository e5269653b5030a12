"""`tta-bench plan` and `tta-bench memory`: what a run costs, estimated before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tta_bench.api import Target
from tta_bench.config.parameters import configured
from tta_bench.description import Description, columns
from tta_bench.errors import Unsupported, UserError
from tta_bench.footprint import account, cache
from tta_bench.grid import Cell
from tta_bench.planning.cautions import cautions
from tta_bench.planning.disk import needed
from tta_bench.planning.tasks import passes, tasks
from tta_bench.plugins import registry

MIB = 2**20
MEMORY_IS = "memory_mib, the peak of one adaptation step; FP32 bytes scaled ideally by bits / 32:"
PACKED_IS = "packed_mib, stored between steps; codes at their bits, all else and the method's state in FP32:"


def describe(name: str, cells: Sequence[Cell], reduced: Sequence[str] = ()) -> Description:
    """Cells, tasks, passes, disk and memory of a grid; `reduced` is what `--micro` has changed in it."""
    cost, disk, warnings = passes(cells), needed(cells), cautions(cells)
    rows = [_row(cell) for cell in {(cache.facts(c), _names(c)): c for c in cells}.values()]
    ratio = cost.executed / cost.naive if cost.naive else 1.0
    found = tasks(cells)
    by_steps = sorted({c.cell.labels.method for task in found for c in task.cells if c.predicts_by_steps})
    note = (
        f"Predicting without adapting costs as much as a step: {', '.join(by_steps)}.\n" if by_steps else ""
    )
    data = {
        "name": name,
        "cells": len(cells),
        "tasks": len(found),
        "records": sum(cell.records_expected for cell in cells),
        "passes": cost.executed,
        "naive_passes": cost.naive,
        "predicted_by_steps": by_steps,
        "disk_bytes": disk._asdict(),
        "memory": rows,
        "warnings": warnings,
        "reduced": list(reduced),
    }
    text = (
        f"{name}: {data['cells']} cells in {data['tasks']} tasks, {data['records']} records.\n"
        f"Batch passes (a backward counts as two): {cost.executed}; one run for every cell and round "
        f"would need {cost.naive} ({ratio:.2f} of it).\n"
        f"{note}Disk, about: images {disk.images / 1e9:.1f} GB, weights {disk.weights / 1e9:.2f} GB, "
        f"results {disk.results / 1e6:.1f} MB, features that are read again {disk.features / 1e9:.2f} GB a "
        f"worker.\n\n{columns(rows)}"
        + "".join(f"\n\n--micro: {text}." for text in reduced)
        + "".join(f"\n\nWarning: {text}" for text in warnings)
    )
    return Description(text, data)


def describe_memory(
    model: str,
    quantizer: str,
    bits: str | None,
    method: str,
    params: Mapping[str, Any],
    batch_size: int,
) -> Description:
    """The three memory columns of one combination, and what they are made of."""
    source = configured("models", model, {})
    quantiser = configured("quantizers", quantizer, {"bits": bits} if bits else {})
    target = Target(model, source.family, quantiser.bits)
    presets = registry.load("methods", method).presets(target)
    adapter = configured("methods", method, presets | dict(params))
    try:
        report = account.account(source, quantiser, adapter, batch_size)
    except Unsupported as reason:
        pair = f"{method} on {model} {quantiser.bits}"
        raise UserError(f"{pair}: {reason}. Choose another method, model or quantizer.") from None
    data = {
        "model": model,
        "bits": quantiser.bits,
        "method": method,
        "batch_size": batch_size,
        **_mib(report),
        "memory_parts_mib": _parts(report.memory_parts),
        "packed_parts_mib": _parts(report.packed_parts),
        "fp32_parts_mib": _parts(report.breakdown),
    }
    lines = [f"{key}: {value}" for key, value in data.items() if not key.endswith("parts_mib")]
    lines += [f"\n{MEMORY_IS}", *_sum_of(report.memory_parts, report.breakdown)]
    lines += [f"\n{PACKED_IS}", *_sum_of(report.packed_parts)]
    return Description("\n".join(lines), data)


def _parts(parts: Mapping[str, int]) -> dict[str, float]:
    return {name: round(size / MIB, 2) for name, size in parts.items()}


def _sum_of(parts: Mapping[str, int], before_scaling: Mapping[str, int] | None = None) -> list[str]:
    """Lines of parts and of their sum, in MiB."""
    lines = []
    for name, size in [*parts.items(), ("sum", sum(parts.values()))]:
        line = f"  {name:<12} {size / MIB:10.2f} MiB"
        if before_scaling is not None:
            full = before_scaling.get(name, sum(before_scaling.values()))
            line += f"  (FP32 {full / MIB:.2f})"
        lines.append(line)
    return lines


def _row(cell: Cell) -> dict[str, Any]:
    model, quantizer, method, stream = _names(cell)
    row = {"model": model, "quantizer": quantizer, "bits": cell.bits, "method": method}
    row |= {"stream": stream} if stream else {}
    try:
        report = cache.of(cell)
    except Unsupported as reason:
        return row | {"memory_mib": None, "packed_mib": None, "note": str(reason)}
    found = _mib(report)
    return row | {k: found[k] for k in ("memory_mib", "packed_mib")} | {"note": ""}


def _names(cell: Cell) -> tuple[str, str, str, str]:
    """The labels of a cell's row, without the seed: TENT and TENT* need equal memory, but have two rows."""
    names = cell.labels
    return names.model, names.quantizer, names.method, names.stream


def _mib(report: account.MemoryReport) -> dict[str, float | None]:
    columns = ("memory_mib", "packed_mib", "measured_mib")
    found = {name: getattr(report, name) for name in columns}
    return {name: None if mib is None else round(mib, 1) for name, mib in found.items()}
