"""Checks of methods that need only their class."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from tta_bench.api import Target
from tta_bench.api.families import FAMILIES
from tta_bench.api.method import passes_per_batch
from tta_bench.config.parameters import check_params
from tta_bench.plugins.search_space import ends

PRESET_FAMILIES = (*FAMILIES, "another")


def passes_are_declared(plugin: Any) -> None:
    """declares forward and backward passes per batch."""
    passes_per_batch(plugin())


def presets_fit(plugin: Any) -> None:
    """its presets name its own parameters, with values in their ranges."""
    for family, bits in product(PRESET_FAMILIES, ("FP32", "W8A8", "W4A4", "W2A4")):
        _, problems = check_params(plugin, plugin.presets(Target("a model", family, bits)), "presets")
        assert not problems, f"{family} {bits}: " + "; ".join(map(str, problems))


def search_space_is_sound(plugin: Any) -> None:
    """its search space names its own parameters, and every sampled value is accepted."""
    rng, declared = np.random.default_rng(0), plugin.search_space
    samples = [{name: space.sample(rng) for name, space in declared.items()} for _ in range(20)]
    samples += [{name: end} for name, space in declared.items() for end in ends(space)]
    for sample in samples:
        _, problems = check_params(plugin, sample, "search")
        assert not problems, "; ".join(map(str, problems))
