"""Calibrations on disk: made once a machine, found again by what they were made from.

Each is one safetensors file: integer codes and scales, and a JSON header that says what they were made from.
A quantizer that works block by block saves its finished blocks, so that a killed calibration goes on.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from tta_bench import cache
from tta_bench.api import BlockwiseQuantizer, Calibration, Model, Progress, Quantizer
from tta_bench.identity import PluginIdentity

KIND = "calibrations"  # of cache entries
FORMAT = "tta-bench-calibration-2"
UNFINISHED = ".unfinished"
ABANDONED_SECONDS = 30 * 24 * 3600
LENGTH_BYTES = 8  # of the number at the start of a safetensors file: how long its header is
Facts = dict[str, str]


def of(
    source: PluginIdentity,
    scheme: PluginIdentity,
    model: Model,
    images: Tensor,
    progress: Progress = lambda *_: None,
) -> Calibration:
    """The calibration of `model`, which `source` has built, by the quantizer `scheme`."""
    facts = facts_of(source, scheme, images)
    blocks = f"{KIND}/{_name(facts)}{UNFINISHED}"

    def make() -> Calibration:
        _remove_abandoned()
        return _calibrate(scheme.make(), copy.deepcopy(model), images, progress, facts, blocks)

    found = cached(facts, make)
    shutil.rmtree(cache.folder() / blocks, ignore_errors=True)
    return found


def facts_of(source: PluginIdentity, scheme: PluginIdentity, images: Tensor) -> Facts:
    """What a calibration depends on; the number of threads, because it decides how sums are rounded."""
    return {
        "weights": source.fingerprint,
        "model": source.digest,
        "quantizer": scheme.digest,
        "images": hashlib.sha256(images.contiguous().numpy().data).hexdigest(),
        "versions": f"torch {version('torch')}, timm {version('timm')}",
        "threads": str(torch.get_num_threads()),
    }


def cached(facts: Facts, make: Callable[[], Calibration], kind: str = KIND) -> Calibration:
    """The calibration made from `facts`: read if it is there, else made by one process and saved."""

    def make_apart() -> Calibration:
        """Tensors in memory of their own, as safetensors wants them."""
        return {name: t.detach().clone(memory_format=torch.contiguous_format) for name, t in make().items()}

    return cache.load_or_make(
        kind,
        f"{_name(facts)}.safetensors",
        make_apart,
        lambda calibration: encode(calibration, facts),
        lambda content: decode(content, facts),
    )


def encode(calibration: Calibration, facts: Facts) -> bytes:
    """The content of a calibration file: the same bytes for the same tensors."""
    return save(calibration, {FORMAT: json.dumps(facts, sort_keys=True)})  # several keys have a random order


def decode(content: bytes, facts: Facts) -> Calibration:
    """The calibration in a file's content; ValueError if it is none, or was made from other facts."""
    try:
        end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
        header = json.loads(content[LENGTH_BYTES:end])["__metadata__"]
        if json.loads(header[FORMAT]) == facts:
            return load(content)
    except (SafetensorError, LookupError, TypeError) as error:
        raise ValueError("not a calibration") from error
    raise ValueError("a calibration of other weights, parameters or images")


def _calibrate(
    quantizer: Quantizer, model: Model, images: Tensor, progress: Progress, facts: Facts, blocks: str
) -> Calibration:
    """Calibrate, block by block if the quantizer can; finished blocks are cache entries of kind `blocks`."""
    if not isinstance(quantizer, BlockwiseQuantizer):
        return quantizer.calibrate(model, images, progress)

    def once(block: str, calibrate_block: Callable[[], Calibration]) -> Calibration:
        return cached(facts | {"block": block}, calibrate_block, blocks)

    return quantizer.calibrate_blocks(model, images, progress, once)


def _remove_abandoned() -> None:
    """Delete the blocks of calibrations that nobody has gone on with for a long time."""
    limit = time.time() - ABANDONED_SECONDS
    for path in (cache.folder() / KIND).glob(f"*{UNFINISHED}"):
        with suppress(OSError):
            if path.stat().st_mtime < limit:
                shutil.rmtree(path, ignore_errors=True)


def _name(facts: Facts) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
