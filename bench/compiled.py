"""Section `compiled`: CPU time of short grids with compiled code, without it, and without single kernels."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from bench.harness import run_locally
from bench.measure import Clock, Measure, race, ratios
from tta_bench_quantizers._core.activations import UniformActivation
from tta_bench_quantizers._core.twin import TwinSoftmax
from tta_bench_quantizers.adalog.logarithmic import AdaLogActivation

STREAM = {
    "corruptions": ["gaussian_noise", "fog", "pixelate"],
    "severity": 5,
    "rounds": 1,
    "batch_size": 64,
    "limit": 256,
}
QUANTISERS = {
    "uniform": UniformActivation,
    "twin_softmax": TwinSoftmax,
    "adalog": AdaLogActivation,
}
# Model, quantizer, and the kernels that the pair uses.
GRIDS: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "vit-micro uniform W8A8": ("vit-micro", {"use": "uniform", "bits": "W8A8"}, ("uniform",)),
    "vit-micro ptq4vit W8A8": (
        "vit-micro",
        {"use": "ptq4vit", "bits": "W8A8"},
        ("uniform", "twin_softmax"),
    ),
    "vit-micro ptq4vit released": (
        "vit-micro",
        {"use": "ptq4vit", "bits": "W8A8", "twin_mode": "released"},
        ("uniform", "twin_softmax"),
    ),
    "vit-micro adalog W4A4": ("vit-micro", {"use": "adalog", "bits": "W4A4"}, ("uniform", "adalog")),
    "resnet-micro mqbench W8A8": ("resnet-micro", {"use": "mqbench", "bits": "W8A8"}, ("uniform",)),
}


def compiled(_: Clock) -> Iterator[Measure]:
    """Each grid's CPU time without kernels over that with all of them; source and ZOA."""
    for name, (model, quantizer, kernels) in GRIDS.items():
        variants = {"compiled": (), "eager": kernels}
        if len(kernels) > 1:
            variants |= {f"without {kernel}": (kernel,) for kernel in kernels}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "grid.yaml"
            file.write_text(yaml.safe_dump(_grid(model, quantizer)))
            runs = {variant: _run(file, off) for variant, off in variants.items()}
            yield from ratios(name, race(runs, time.process_time), "compiled", {})


def _grid(model: str, quantizer: dict[str, str]) -> dict[str, Any]:
    return {
        "name": "compiled",
        "data": "cifar10-mini",
        "models": [model],
        "quantizers": [quantizer],
        "methods": ["source", "zoa"],
        "stream": STREAM,
        "seeds": [2020],
        "run": {"engine": "local"},
    }


def _run(file: Path, off: tuple[str, ...]) -> Callable[[], None]:
    """Run the grid into a fresh folder, with these kernels switched off."""
    counter = itertools.count()

    def run() -> None:
        with ExitStack() as stack:
            for kernel in off:
                stack.enter_context(_without(kernel))
            run_locally(file, file.parent / f"{'-'.join(off)}-{next(counter)}")

    return run


def _without(kernel: str) -> Any:
    quantiser = QUANTISERS[kernel]
    return patch.object(quantiser, "fused", quantiser.eager)
