"""What a run would cost, before it starts: the passes, memory and disk of a grid, or of one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from tta_bench.commands.inputs import Source, grid_of
from tta_bench.description import Description
from tta_bench.planning import estimate


def plan(
    source: Source,
    *,
    limit: int | None = None,
    only: Sequence[str] | None = None,
    override: Sequence[str] = (),
    micro: bool = False,
    presets: str | PathLike[str] | None = None,
) -> Description:
    """What a run would do: cells, shared passes, disk and memory. No data is needed."""
    grid = grid_of(source, only=only, override=override, limit=limit, micro=micro, presets=presets)
    return estimate.describe(grid.benchmark.name, grid.chosen, grid.benchmark.reduced)


def memory(
    model: str,
    method: str = "source",
    *,
    quantizer: str = "fp32",
    bits: str | None = None,
    batch_size: int = 64,
    params: Mapping[str, Any] | None = None,
) -> Description:
    """The memory of one adaptation step; `params` are the method's. No weights, data or GPU are needed."""
    return estimate.describe_memory(model, quantizer, bits, method, params or {}, batch_size)
