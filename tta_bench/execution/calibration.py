"""A cache of calibrations: each is made once per machine and found again by its inputs.

Each is one safetensors file with integer codes and scales, and a JSON header that names the inputs. A
quantizer that works block by block saves finished blocks, so that a killed calibration can continue.
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

from tta_bench.api import BlockwiseQuantizer, Calibration, Model, Progress, Quantizer
from tta_bench.cache import entries
from tta_bench.plugins import registry
from tta_bench.plugins.identity import PluginIdentity

KIND = "calibrations"  # of cache entries
FORMAT = "tta-bench-calibration-2"
UNFINISHED = ".unfinished"
ABANDONED_SECONDS = 30 * 24 * 3600
LENGTH_BYTES = 8  # of the header's length, with which a safetensors file begins
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

    def once(block: str, calibrate_block: Callable[[], Calibration]) -> Calibration:
        """A block's calibration; finished blocks are cache entries of kind `blocks`."""
        return cached(facts | {"block": block}, calibrate_block, blocks)

    def make() -> Calibration:
        _remove_abandoned()
        quantizer: Quantizer = scheme.make()
        if isinstance(quantizer, BlockwiseQuantizer):
            return quantizer.calibrate_blocks(copy.deepcopy(model), images, progress, once)
        return quantizer.calibrate(copy.deepcopy(model), images, progress)

    found = cached(facts, make)
    shutil.rmtree(entries.folder() / blocks, ignore_errors=True)
    return found


def facts_of(source: PluginIdentity, scheme: PluginIdentity, images: Tensor) -> Facts:
    """The inputs of a calibration; also the number of threads, which changes how sums are rounded."""
    later = registry.load(scheme.group, scheme.use).after_calibration
    return {
        "weights": source.fingerprint,
        "model": source.digest,
        "quantizer": scheme.without(*later).digest,
        "images": hashlib.sha256(images.contiguous().numpy().data).hexdigest(),
        "versions": f"torch {version('torch')}, timm {version('timm')}",
        "threads": str(torch.get_num_threads()),
    }


def cached(facts: Facts, make: Callable[[], Calibration], kind: str = KIND) -> Calibration:
    """The calibration made from `facts`: read from the cache, or made by one process and saved."""

    def make_apart() -> Calibration:
        """Copies of the tensors, because safetensors does not save tensors that share memory."""
        return {name: t.detach().clone(memory_format=torch.contiguous_format) for name, t in make().items()}

    return entries.load_or_make(
        kind,
        f"{_name(facts)}.safetensors",
        make_apart,
        lambda calibration: encode(calibration, facts),
        lambda content: decode(content, facts),
    )


def encode(calibration: Calibration, facts: Facts) -> bytes:
    """The content of a calibration file: the same bytes for the same tensors."""
    return save(calibration, {FORMAT: json.dumps(facts, sort_keys=True)})  # one key: more have no order


def decode(content: bytes, facts: Facts) -> Calibration:
    """The calibration in a file; ValueError if it is not one, or was made from other inputs."""
    try:
        end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
        header = json.loads(content[LENGTH_BYTES:end])["__metadata__"]
        if json.loads(header[FORMAT]) == facts:
            return load(content)
    except (SafetensorError, LookupError, TypeError) as error:
        raise ValueError("not a calibration") from error
    raise ValueError("a calibration of other weights, parameters or images")


def _remove_abandoned() -> None:
    """Delete the blocks of calibrations that were abandoned long ago."""
    limit = time.time() - ABANDONED_SECONDS
    for path in (entries.folder() / KIND).glob(f"*{UNFINISHED}"):
        with suppress(OSError):
            if path.stat().st_mtime < limit:
                shutil.rmtree(path, ignore_errors=True)


def _name(facts: Facts) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
