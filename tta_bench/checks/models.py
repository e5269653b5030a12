"""`tta-bench models check`: the accuracy of a model on clean images, without adaptation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import binom

from tta_bench.api import NORM_TYPES, Data, Domain, Model, ModelSource
from tta_bench.config.parameters import configured, settings_of, spelled_out
from tta_bench.description import Description
from tta_bench.errors import ConfigError, Problem, UserError
from tta_bench.plugins import registry

CLEAN = Domain("clean", 0)
CONFIDENCE = 0.99
CAUSES = (
    "Check that mean, std, eps, stride and the resizing of the data are those of the training, and that the "
    "classes of the data are in the order of the model's logits."
)


@dataclass(frozen=True)
class ModelCheckRequest:
    """Which model to check on which data; `params` holds the `key=value` texts of each group."""

    model: str
    data: str
    params: Mapping[str, Sequence[str]]
    images: int
    batch_size: int
    expected: float | None  # accuracy in %


def describe(request: ModelCheckRequest) -> Description:
    """The clean accuracy beside the expected one, and how images are preprocessed."""
    source, data = _plugins(request)
    source.fetch()
    _refuse_problems(request, source, data)
    model = source.build()
    labels = data.test_labels()[: request.images]
    hits = _hits(model, data, labels, request.batch_size)
    facts = {
        "model": request.model,
        "data": request.data,
        "images": len(labels),
        "right": hits,
        "accuracy": round(100 * hits / len(labels), 2),
        "expected": request.expected,
        "as_expected": _as_expected(hits, len(labels), request.expected),
        "weights_sha256": model.weights_sha256,
        "input": _input(model, source),
    }
    return Description(_text(facts), facts)


def _plugins(request: ModelCheckRequest) -> tuple[ModelSource, Data]:
    source = configured("models", request.model, settings_of(request.params["models"], "--set"))
    presets = registry.load("data", spelled_out("data", request.data)[0]).presets(source)
    given = settings_of(request.params["data"], "--set-data")
    return source, configured("data", request.data, presets | given)


def _refuse_problems(request: ModelCheckRequest, source: ModelSource, data: Data) -> None:
    found = [Problem(f"model {request.model}", text) for text in source.problems()]
    found += [Problem(f"data {request.data}", text) for text in data.problems([CLEAN])]
    if found:
        raise ConfigError("inputs", found)
    for fact, unit in (("num_classes", "classes"), ("input_size", "pixels per side")):
        mine, theirs = getattr(source, fact), getattr(data, fact)
        if theirs and mine != theirs:
            pair = f"{request.model} has {mine} {unit}, and {request.data} has {theirs}"
            raise UserError(f"{pair}. Choose other --data.")


@torch.no_grad()
def _hits(model: Model, data: Data, labels: np.ndarray, batch_size: int) -> int:
    """How many images are classified correctly; the model is limited to the classes of the data."""
    from tta_bench.models.restricted import restrict_classes_

    classes = data.classes()
    if classes is not None:
        restrict_classes_(model, classes)
    index = np.arange(len(labels))
    found = 0
    for start in range(0, len(labels), batch_size):
        part = index[start : start + batch_size]
        found += int((model(data.test_images(CLEAN, part)).argmax(1).numpy() == labels[part]).sum())
    return found


def _as_expected(hits: int, images: int, expected: float | None) -> bool | None:
    """Whether a model of the expected accuracy could have so few correct images by chance."""
    if expected is None:
        return None
    return bool(binom.cdf(hits, images, expected / 100) > (1 - CONFIDENCE) / 2)


def _input(model: Model, source: ModelSource) -> dict[str, Any]:
    """How images are preprocessed, and the eps of the norm layers."""
    norms = [module for module in model.net.modules() if isinstance(module, NORM_TYPES)]
    return {
        "pixels": model.input_size,
        "resize": source.view.resize if source.view else None,
        "mean": [round(v, 4) for v in model.mean.flatten().tolist()],
        "std": [round(v, 4) for v in model.std.flatten().tolist()],
        "eps": sorted({float(norm.eps) for norm in norms if norm.eps is not None}),
        "stride": getattr(source, "stride", None),
    }


def _text(facts: dict[str, Any]) -> str:
    shown = ", ".join(f"{key} {value}" for key, value in facts["input"].items() if value is not None)
    lines = [
        f"{facts['model']} on {facts['data']}: {facts['right']} of {facts['images']} clean images correct, "
        f"{facts['accuracy']:.1f} %",
        f"images: {shown}",
    ]
    if facts["expected"] is None:
        return "\n".join(lines)
    gap = facts["accuracy"] - facts["expected"]
    fine = "which chance can explain"
    verdict = fine if facts["as_expected"] else f"lower than chance can explain. {CAUSES}"
    return "\n".join([*lines, f"expected {facts['expected']:.1f} %: {gap:+.1f} points, {verdict}"])
