"""Section `agreement`: predictions and logits of integer engines against the simulation, without times."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

import numpy as np

from bench.engines import available
from bench.measure import Clock, Measure
from bench.networks import MICRO
from tta_bench.api import Domain, Model
from tta_bench.api.agreement import agreement
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench_quantizers.uniform import UniformQuantizer

DOMAINS = (Domain("clean", 0), Domain("gaussian_noise", 5), Domain("fog", 5), Domain("pixelate", 5))
LEAST_PERCENT = "≥ 99"


def engines_agree(_: Clock) -> Iterator[Measure]:
    """All images of the embedded data, clean and corrupted, on every engine that computes the network."""
    for name in MICRO:
        yield from compared(name, Cifar10Mini.size)


def compared(name: str, count: int) -> Iterator[Measure]:
    """Same top-1 predictions in percent and the largest difference of a logit, on so many images."""
    data, models = Cifar10Mini(), installed(name)
    simulation = models.pop("simulated")
    for domain in DOMAINS:
        data.prepare(domain, count)
        images = data.test_images(domain, np.arange(count))
        for engine, model in models.items():
            found, section = agreement(model, simulation, images), f"agreement, {name}, {engine}"
            yield Measure(section, f"{domain.corruption}, same top-1", 100 * found.share, "%", LEAST_PERCENT)
            yield Measure(section, f"{domain.corruption}, logits", found.largest_difference, "")


def installed(name: str) -> dict[str, Model]:
    """A network in simulation and on every engine that computes it, from one calibration."""
    scheme, floating = UniformQuantizer(), MICRO[name]().build()
    images = scheme.calibration_set(Cifar10Mini().source_images())
    calibration = scheme.calibrate(deepcopy(floating), images, lambda *_: None)
    schemes = {engine: replace(scheme, engine=engine) for engine in available()}  # type: ignore[arg-type]
    return {
        engine: each.install(deepcopy(floating), calibration)
        for engine, each in schemes.items()
        if each.unsupported(floating) is None
    }
