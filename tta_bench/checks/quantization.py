"""`tta-bench quantize`: calibrate one model and report on each quantised site."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.progress import Progress as Bars
from torch import Tensor

from tta_bench.api import Calibration, Model, ModelSource, Quantizer
from tta_bench.api.agreement import agreement
from tta_bench.checks.integer_products import integer_products
from tta_bench.config.parameters import configured, settings_of, spelled_out
from tta_bench.description import Description, columns
from tta_bench.errors import Unsupported, UserError
from tta_bench.execution import calibration
from tta_bench.grid import identity_of
from tta_bench.plugins import registry

REPORT_IMAGES = 64
MIB = 2**20
OPTIONS = {"quantizers": "--set", "models": "--set-model", "data": "--set-data"}


@dataclass(frozen=True)
class QuantizationRequest:
    """Model, quantizer and data to use; `params` has the `key=value` texts of each group."""

    model: str
    quantizer: str
    bits: str | None
    data: str
    params: Mapping[str, Sequence[str]]
    threads: int

    def settings(self, group: str) -> dict[str, Any]:
        """The parameters given for one plugin."""
        return settings_of(self.params[group], OPTIONS[group])


def describe(request: QuantizationRequest) -> Description:
    """Sites of a quantised model with bits, scales, clip rates and signal-to-noise ratios."""
    start = time.monotonic()
    scheme, floating, images, found = prepared(request)
    seconds = time.monotonic() - start
    simulation = (scheme.simulated() or scheme).install(copy.deepcopy(floating), found)
    rows = [asdict(site) for site in scheme.report(simulation, floating, images[:REPORT_IMAGES])]
    summary = {
        "model": request.model,
        "quantizer": request.quantizer,
        "bits": scheme.bits,
        "sites": len(rows),
        "calibration_images": scheme.calibration_images,
        "seconds": round(seconds, 1),
        "packed_mib": round(scheme.packed_bytes(floating) / MIB, 3),
        "float_mib": round(sum(p.nbytes for p in floating.parameters()) / MIB, 3),
    }
    if scheme.simulated() is not None:
        summary |= _engine_facts(scheme, floating, simulation, found, images, rows)
    head = ", ".join(f"{key} {value}" for key, value in summary.items())
    return Description(f"{head}\n\n{columns([_shown(row) for row in rows])}", summary | {"report": rows})


def prepared(
    request: QuantizationRequest, unsupported: Callable[[Quantizer, Model], str | None] = lambda *_: None
) -> tuple[Quantizer, Model, Tensor, Calibration]:
    """The quantizer, the float model, the clean images, and the calibration that a run would use.

    `unsupported` gives a further reason for an error before the calibration.
    """
    torch.set_num_threads(request.threads)
    source: ModelSource = configured("models", request.model, request.settings("models"))
    bits = {"bits": request.bits} if request.bits else {}
    scheme: Quantizer = configured("quantizers", request.quantizer, request.settings("quantizers") | bits)
    source.fetch()
    floating = source.build()
    images = _source_images(request, source, floating.input_size)
    if reason := scheme.unsupported(floating) or unsupported(scheme, floating):
        raise UserError(f"{request.quantizer} on {request.model}: {reason}.")
    return scheme, floating, images, _calibrated(request, source, scheme, floating, images)


def _engine_facts(
    scheme: Quantizer,
    floating: Model,
    simulation: Model,
    found: Calibration,
    images: Tensor,
    rows: list[dict[str, Any]],
) -> dict[str, Any]:
    """Agreement and share of integer products of an engine; every row gets the number of its products."""
    engine = scheme.install(copy.deepcopy(floating), found)
    compared = agreement(engine, simulation, scheme.calibration_set(images))
    products = integer_products(floating, images[:1], scheme.integer_sites(engine))
    for row in rows:
        row["integer_products"] = products.by_site.get(row["site"], 0)
    return {
        "integer_sites": len(products.by_site),
        "expected_integer_sites": len(scheme.expected_integer_sites(floating)),
        "integer_products_percent": round(100 * products.share, 1),
        "products": products.all,
        "top1_agreement_percent": round(100 * compared.share, 1),
        "largest_difference": round(compared.largest_difference, 4),
    }


def _source_images(request: QuantizationRequest, source: ModelSource, input_size: int) -> Tensor:
    """The clean images of the data, with the model's presets."""
    presets = registry.load("data", spelled_out("data", request.data)[0]).presets(source)
    images: Tensor = configured("data", request.data, presets | request.settings("data")).source_images()
    if images.shape[-1] != input_size:
        raise UserError(
            f"{request.model} reads {input_size}-pixel images, and {request.data} has "
            f"{images.shape[-1]}-pixel ones. Choose --data of that size."
        )
    return images


def _calibrated(
    request: QuantizationRequest, source: ModelSource, scheme: Quantizer, model: Model, images: Tensor
) -> Calibration:
    """The calibration that a run of the same model, quantizer and data would use."""
    made_from = (
        identity_of("models", spelled_out("models", request.model)[0], source, source.fingerprint()),
        identity_of("quantizers", spelled_out("quantizers", request.quantizer)[0], scheme),
    )
    try:
        wanted = scheme.calibration_set(images)
    except Unsupported as reason:
        raise UserError(f"{request.quantizer} on {request.data}: {reason}. Choose other --data.") from None
    with Bars(transient=True) as bars:
        bar = bars.add_task("calibrating", total=None)
        return calibration.of(
            *made_from, model, wanted, lambda done, total: bars.update(bar, completed=done, total=total)
        )


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row as text, numbers with three digits."""

    def text(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, tuple):
            return " – ".join(dict.fromkeys(f"{v:.3g}" for v in value))
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    return {key: text(value) for key, value in row.items()}
