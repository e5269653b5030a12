"""Byte counts of any model × quantizer × method, without a run, a GPU or weights, in seconds.

Three columns, which are never merged:

- `memory_bytes`, the paper's: peak live tensor bytes of one adaptation step in FP32 (parameters,
  buffers, input, activations, gradients, optimizer, method state; fused attention). For a quantised
  model that count is scaled ideally, as the paper does: parameters × weight bits / 32 + the rest ×
  activation bits / 32. Layers that a scheme keeps at other widths, and the images that the first layer
  reads, count with their own widths. It says nothing about kernels, and leaves out library workspaces
  (cuBLAS alone needs about 8 MiB on a GPU).
- `packed_bytes`, what has to be stored between steps: the network's codes, scales and zero points,
  everything that stays in FP32 (norm layers, biases, embeddings), and the method's state in FP32. It has
  no activations and is not scaled: for a batch of one image it may exceed `memory_bytes`.
- `measured_bytes`, CUDA's own peak; None without CUDA, never an estimate.

The first two are sums of their parts.

Questions that fake tensors cannot answer are answered by the conventions in `fake_tensors`: every sample is
kept.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from tta_bench.api import Bits, Method, Model, ModelSource, Quantizer
from tta_bench.errors import Unsupported
from tta_bench.footprint.dry_run import (
    Usage,
    garbage_on_demand,
    use_of_backbone,
    use_of_features,
    use_of_images,
)
from tta_bench.footprint.fake_tensors import fake_tensors
from tta_bench.footprint.peak import ByteCounter
from tta_bench.footprint.skeleton import fake_, hold_first_input_, skeleton
from tta_bench.plugins import registry

MIB = 2**20


@dataclass(frozen=True)
class MemoryReport:
    """The three columns and their parts."""

    memory_parts: dict[str, int]  # ideally scaled
    packed_parts: dict[str, int]
    measured_bytes: int | None
    breakdown: dict[str, int]  # the FP32 peak by part
    bounded: bool  # False: the method's state was still growing when counting stopped

    @property
    def memory_bytes(self) -> int:
        """The paper's column."""
        return sum(self.memory_parts.values())

    @property
    def packed_bytes(self) -> int:
        """What is stored between steps."""
        return sum(self.packed_parts.values())

    @property
    def memory_mib(self) -> float:
        """The paper's column."""
        return self.memory_bytes / MIB

    @property
    def packed_mib(self) -> float:
        """What is stored between steps."""
        return self.packed_bytes / MIB

    @property
    def measured_mib(self) -> float | None:
        """CUDA's peak, where there was CUDA."""
        return None if self.measured_bytes is None else self.measured_bytes / MIB


def account(
    model: str | ModelSource, quantizer: Quantizer, method: Method, batch_size: int = 64
) -> MemoryReport:
    """The byte counts of one adaptation step; `method` and all random generators stay as they are."""
    source = registry.load("models", model)() if isinstance(model, str) else model
    with torch.random.fork_rng(devices=[]), garbage_on_demand():
        network_bytes, widths, use = _dry_run(source, quantizer, copy.deepcopy(method), batch_size)
    parts = ("parameters", "inputs", "activations", "gradients", "state")
    return MemoryReport(
        memory_parts=ideal_parts(use, widths),
        packed_parts={"network": network_bytes, "method state": use.stored_bytes},
        measured_bytes=None,
        breakdown={part: getattr(use, part) for part in parts},
        bounded=use.bounded,
    )


@dataclass(frozen=True)
class Widths:
    """Bit-widths of a network, and of its layers that have other widths."""

    bits: Bits
    input_bits: int  # of the images
    layers: tuple[tuple[int, int], ...]  # FP32 bytes and bits of weights with other widths

    @classmethod
    def of(cls, quantizer: Quantizer, model: Model) -> Widths:
        """The widths that an unquantised model will have."""
        bits, sites = Bits.parse(quantizer.bits), quantizer.site_bits(model)
        modules = dict(model.net.named_modules())
        first = next((name for name, m in modules.items() if isinstance(m, nn.Linear | nn.Conv2d)), None)
        others = {site: width.weight for site, width in sites.items() if width.weight != bits.weight}
        weights = ((modules[site].get_parameter("weight"), width) for site, width in others.items())
        layers = tuple((weight.nbytes, width) for weight, width in weights)
        return cls(bits, sites.get(first or "", bits).activation, layers)


def ideal_parts(use: Usage, widths: Widths) -> dict[str, int]:
    """The peak by part if every FP32 number took only its bit-width."""
    weight, activation = widths.bits.weight, widths.bits.activation
    more = sum(size * (width - weight) for size, width in widths.layers)
    scaled = {
        "parameters": use.parameters * weight + more,
        "inputs": use.inputs * widths.input_bits,
        "activations": use.activations * activation,
        "gradients": use.gradients * activation,
        "state": use.state * activation,
    }
    return {part: round(bits / 32) for part, bits in scaled.items()}


class Meter:
    """CUDA's peak of one of several cells that share a device; memory that other cells hold is subtracted.

    A cell holds its model, and whatever was allocated and not freed while it was measured.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.held_bytes, self.peak_bytes = device, 0, 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count allocations inside as this cell's; without CUDA nothing is measured."""
        if self.device.type != "cuda":
            yield
            return
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        try:
            yield
        finally:
            peak = torch.cuda.max_memory_allocated(self.device) - before
            self.peak_bytes = max(self.peak_bytes, self.held_bytes + peak)
            self.held_bytes += torch.cuda.memory_allocated(self.device) - before


def _dry_run(
    source: ModelSource, quantizer: Quantizer, method: Method, batch_size: int
) -> tuple[int, Widths, Usage]:
    """Packed bytes and bit-widths of the network, and the memory of one step."""
    model = skeleton(source)
    with fake_tensors(), ByteCounter() as counter, torch.no_grad():
        fake_(model)
        quantizer.describe_(model)
        reason = quantizer.unsupported(model) or method.unsupported(model)
        reason = reason or method.refuses_batch(batch_size)
        if reason is not None:
            raise Unsupported(reason)
        network = quantizer.packed_bytes(model), Widths.of(quantizer, model)
        hold_first_input_(model)
        if method.consumes == "images":
            return *network, use_of_images(model, method, batch_size, counter)
        backbone, width = use_of_backbone(model, method, batch_size, counter)
    return *network, use_of_features(model, method, batch_size, backbone, width)
