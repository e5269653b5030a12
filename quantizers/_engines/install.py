"""Engines replace what they can compute in a simulated network; everything else stays as it was."""

from __future__ import annotations

from tta_bench.api import Model
from tta_bench_quantizers._engines.integer_layers import integer_layers, integer_layers_
from tta_bench_quantizers._engines.option import Engine


def install_engine_(engine: Engine, model: Model) -> None:
    """Let the engine compute a simulated network, in place."""
    if engine == "torch-int8":
        integer_layers_(model.net)


def integer_sites_of(engine: Engine, model: Model) -> list[str]:
    """The sites that the engine computes in integers."""
    return integer_layers(model.net) if engine == "torch-int8" else []
