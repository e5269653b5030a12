"""Sections `forward`, `steps` and `scaling`: the cost of passes and of adaptation steps."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from bench.measure import Clock, Contestant, Measure, race, ratios
from bench.networks import floating, images, quantised
from tta_bench.api import Method, Model, Source
from tta_bench.plugins import registry

SOURCE_IMAGES = 8
FORWARD = {  # network: (batch, quantizers, limits)
    "vit-b": (16, {"PTQ4ViT W8A8": "≤ 1.2", "AdaLog W4A4": "≤ 1.5"}),
    "deit-tiny": (64, {"PTQ4ViT W8A8": "≤ 1.4", "AdaLog W4A4": "≤ 1.5"}),
    "resnet-50": (16, {"MQBench W8A8": "≤ 1.3"}),
    "vim-s": (8, {"PTQ4VM W8A8": ""}),
    "vit-micro": (64, {"PTQ4ViT W8A8": "", "AdaLog W4A4": ""}),
    "resnet-micro": (64, {"MQBench W8A8": ""}),
    "vim-micro": (64, {"PTQ4VM W8A8": ""}),
}
STEPS = {  # network: (batch, quantizer, limit of ZOA's step)
    "vit-b": (16, "PTQ4ViT W8A8", "≤ 2.35"),
    "deit-tiny": (64, "PTQ4ViT W8A8", "≤ 2.8"),
    "resnet-50": (16, "MQBench W8A8", ""),
    "vit-micro": (64, "PTQ4ViT W8A8", ""),
}


def forward(clock: Clock) -> Iterator[Measure]:
    """Quantised forward passes over FP32 ones."""
    for name, (batch, quantizers) in FORWARD.items():
        x = images(floating(name), batch)
        runs = {"FP32": forward_pass(floating(name), x)}
        runs |= {quantizer: forward_pass(quantised(name, quantizer), x) for quantizer in quantizers}
        yield from ratios(f"forward, {name}, batch {batch}", race(runs, clock), "FP32", quantizers)


def steps(clock: Clock) -> Iterator[Measure]:
    """Adaptation steps of a quantised network over its FP32 forward pass; T3A over Source."""
    for name, (batch, quantizer, limit) in STEPS.items():
        x = images(floating(name), batch)
        zoa, foa = (
            method_step(quantised(name, quantizer), m, x, **p) for m, p in (("zoa", {}), ("foa", {"k": 2}))
        )
        runs = {"FP32": forward_pass(floating(name), x), "ZOA": zoa, "FOA K=2": foa}
        yield from ratios(
            f"step, {name} {quantizer}, batch {batch}", race(runs, clock), "FP32", {"ZOA": limit}
        )
    yield from _t3a(clock)


def _t3a(clock: Clock) -> Iterator[Measure]:
    """T3A with the maximum number of supports, on the features of the pass that Source needs, too."""
    model = quantised("vit-b", "PTQ4ViT W8A8")
    x = images(model, 16)
    method = _method(model, "t3a", x)
    for _ in range(200):  # 1000 classes × 20 supports are full long before random features fill them all
        method.step(torch.randn(200, model.head_weight.shape[1]))
    runs = {"Source": forward_pass(model, x), "T3A": lambda: method.step(_features(model, x))}
    yield from ratios("step, vit-b, batch 16", race(runs, clock), "Source", {"T3A": "≤ 1.1"})


def scaling(clock: Clock) -> Iterator[Measure]:
    """How ZOA's step on vit-micro grows with batch, bank and rounds."""
    model = quantised("vit-micro", "PTQ4ViT W8A8")
    x = images(model, 128)
    section = "ZOA step, vit-micro PTQ4ViT W8A8"
    sizes = (16, 32, 64, 128)
    runs = {f"batch {n}": method_step(quantised("vit-micro", "PTQ4ViT W8A8"), "zoa", x[:n]) for n in sizes}
    times = race(runs, clock)
    for n in sizes:
        per_image = [seconds / n for seconds in times[f"batch {n}"]]
        base = [seconds / 64 for seconds in times["batch 64"]]
        yield from ratios(f"{section}, an image", {f"batch {n}": per_image, "64": base}, "64", {})
    banks = {f"bank of {n}": _full_bank(n, x[:64]) for n in (0, 8, 32, 128)}
    yield from ratios(section, race(banks, clock), "bank of 0", {})
    yield _rounds(x[:64], clock)


def _full_bank(size: int, x: Tensor) -> Contestant:
    model = quantised("vit-micro", "PTQ4ViT W8A8")
    method = _method(model, "zoa", x, bank_size=size)
    method.fill()  # type: ignore[attr-defined]
    return partial(method.step, x)


def _rounds(x: Tensor, clock: Clock, rounds: int = 10, domains: int = 15) -> Measure:
    """A stream in which every domain counts as new: the bank fills, and then drops an entry at every step."""
    method = _method(quantised("vit-micro", "PTQ4ViT W8A8"), "zoa", x, store="every", store_every=1)
    batches = [x * (0.5 + 0.5 * i / domains) for i in range(domains)]
    medians = []
    for _ in range(rounds):
        times = race({str(i): partial(method.step, b) for i, b in enumerate(batches)}, clock, repeats=1)
        medians.append(statistics.median(t for (t,) in times.values()))
    section = "ZOA step, vit-micro PTQ4ViT W8A8"
    return Measure(section, "round 10 / round 2", medians[9] / medians[1], "×", "≤ 1.05")


def forward_pass(model: Model, x: Tensor) -> Contestant:
    """A pass without gradients."""
    return torch.no_grad()(lambda: model(x))


@torch.no_grad()
def _features(model: Model, x: Tensor) -> Tensor:
    return model.features(x)


def method_step(model: Model, name: str, x: Tensor, **parameters: object) -> Contestant:
    """A step of a method that is set up."""
    method = _method(model, name, x, **parameters)
    return partial(method.step, x)


@torch.no_grad()
def _method(model: Model, name: str, x: Tensor, **parameters: object) -> Method:
    plugin = registry.load("methods", name)
    method: Method = plugin(**(plugin.presets(model.target()) | parameters))
    method.setup(model, Source(images(model, SOURCE_IMAGES), len(x)))
    return method
