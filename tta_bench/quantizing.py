"""`tta-bench quantize`: calibrate one model and show what each site does to its signal."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from rich.progress import Progress as Bars

from tta_bench import registry
from tta_bench.api import Model, Quantizer
from tta_bench.describe import Description, columns
from tta_bench.errors import UserError
from tta_bench.parameters import configured, settings_of

REPORT_IMAGES = 64
MIB = 2**20


def describe(model: str, quantizer: str, bits: str | None, data: str, settings: Sequence[str]) -> Description:
    """Sites of a quantised model with bits, scales, clip rates and signal-to-noise ratios."""
    from tta_bench_quantizers.report import site_report

    source = configured("models", model, {})
    scheme: Quantizer = configured(
        "quantizers", quantizer, settings_of(settings) | ({"bits": bits} if bits else {})
    )
    images = configured("data", data, registry.load("data", data).presets(source)).source_images()
    floating: Model = source.build()
    if images.shape[-1] != floating.input_size:
        raise UserError(
            f"{model} reads {floating.input_size}-pixel images, and {data} has {images.shape[-1]}-pixel "
            "ones. Choose fitting --data."
        )
    if reason := scheme.unsupported(floating):
        raise UserError(f"{quantizer} on {model}: {reason}.")
    start = time.monotonic()
    quantised = _quantise(scheme, copy.deepcopy(floating), images[: scheme.calibration_images])
    seconds = time.monotonic() - start
    rows = [asdict(site) for site in site_report(quantised, floating, images[:REPORT_IMAGES])]
    packed = scheme.packed_bytes(floating)
    full = sum(p.nbytes for p in floating.parameters())
    summary = {
        "model": model,
        "quantizer": quantizer,
        "bits": scheme.bits,
        "sites": len(rows),
        "calibration_images": scheme.calibration_images,
        "seconds": round(seconds, 1),
        "packed_mib": round(packed / MIB, 3),
        "float_mib": round(full / MIB, 3),
    }
    head = ", ".join(f"{key} {value}" for key, value in summary.items())
    return Description(f"{head}\n\n{columns([_shown(row) for row in rows])}", summary | {"report": rows})


def _quantise(scheme: Quantizer, model: Model, images: torch.Tensor) -> Model:
    with Bars(transient=True) as bars:
        bar = bars.add_task("calibrating", total=None)
        return scheme.quantize(
            model, images, lambda done, total: bars.update(bar, completed=done, total=total)
        )


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row for people: spans and ratios in few digits."""

    def text(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, tuple):
            return " – ".join(dict.fromkeys(f"{v:.3g}" for v in value))
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    return {key: text(value) for key, value in row.items()}
