"""All that a plugin imports: Method, Quantizer, Model, Data, Scenario, and the small types they use.

Images are float tensors [B, 3, H, W] in [0, 1]; a `Model` normalises them itself. Plugins are
dataclasses: their fields are their hyper-parameters, their YAML schema and part of a cell's key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from annotated_types import Ge, Gt, Interval, Le, Lt

from tta_bench.api.data import CorruptionFunction, Data, Domain
from tta_bench.api.method import Method, Source
from tta_bench.api.model import NORM_TYPES, Model, ModelSource, Norm, Passes, Target, View
from tta_bench.api.plugin import Plugin
from tta_bench.api.quantizer import BlockwiseQuantizer, Calibration, Once, Progress, Quantizer
from tta_bench.api.scenario import Scenario, SegmentImages, paired
from tta_bench.api.sites import SiteReport, site_report
from tta_bench.api.stream import Segment, Stream, StreamSchedule, Visit
from tta_bench.cache.native_code import compiled_library
from tta_bench.plugins.base_classes import BASES
from tta_bench.plugins.bits import BitRange, Bits, BitWidth
from tta_bench.plugins.ranges import Count, CountOrZero, Fraction, Momentum, NonNegative, Positive, Seed
from tta_bench.plugins.search_space import Choice, Log, Spaces, Uniform, spaces

if TYPE_CHECKING:
    from tta_bench.data.corrupted.in_memory import Corruptible, Split
    from tta_bench.models.imagenet import TimmModel
    from tta_bench.models.resnet import ResNetModel
    from tta_bench.models.vim import VimModel
    from tta_bench.models.vision_mamba import MambaMixer
    from tta_bench.models.vit import VitModel


def __getattr__(name: str) -> Any:
    """A base class of our own plugins; see `tta_bench.plugins.base_classes`."""
    if name not in BASES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(BASES[name]), name)


__all__ = [
    "NORM_TYPES",
    "BitRange",
    "BitWidth",
    "Bits",
    "BlockwiseQuantizer",
    "Calibration",
    "Choice",
    "Corruptible",
    "CorruptionFunction",
    "Count",
    "CountOrZero",
    "Data",
    "Domain",
    "Fraction",
    "Ge",
    "Gt",
    "Interval",
    "Le",
    "Log",
    "Lt",
    "MambaMixer",
    "Method",
    "Model",
    "ModelSource",
    "Momentum",
    "NonNegative",
    "Norm",
    "Once",
    "Passes",
    "Plugin",
    "Positive",
    "Progress",
    "Quantizer",
    "ResNetModel",
    "Scenario",
    "Seed",
    "Segment",
    "SegmentImages",
    "SiteReport",
    "Source",
    "Spaces",
    "Split",
    "Stream",
    "StreamSchedule",
    "Target",
    "TimmModel",
    "Uniform",
    "View",
    "VimModel",
    "Visit",
    "VitModel",
    "compiled_library",
    "dataclass",
    "field",
    "paired",
    "site_report",
    "spaces",
]
