"""Checks of models, on their skeletons: no weights are needed."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from tta_bench.api import Model, Quantizer
from tta_bench.plugins import registry
from tta_bench.testing.bench import assert_all_reached

QUICK_QUANTIZERS = ("uniform", "mqbench")  # every network is tried with these; both quantise its input


def model_parts_make_the_whole(source: Any) -> None:
    """stem, blocks, pool and head make up the forward pass."""
    model: Model = source.skeleton()
    x = torch.rand(2, 3, model.input_size, model.input_size)
    with torch.no_grad():
        probes, z = model.continue_from(model.enter(model.stem(x)))
        assert torch.equal(model.head(z), model(x)), "continue_from differs from forward"
    assert probes, "`continue_from` returns no layer features"
    assert all(p.ndim == 2 and len(p) == 2 for p in probes), "layer features must be [B, c]"
    assert model.passes.forward_images == 4, (
        "`passes` did not count the images: a forward pass must end in `finish`"
    )


class _Blank(nn.Module):
    """An input quantizer that turns every input into zeros."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def model_input_can_be_quantised(source: Any) -> None:
    """reads images only through `normalise`, with and without a prompt."""
    model: Model = source.skeleton()
    one, other = (torch.rand(2, 3, model.input_size, model.input_size) for _ in range(2))
    if not model.tokens:
        _first_layer_reads_the_images(model, one)
    model.input_quantizer = _Blank()
    with torch.no_grad():
        for prompt in (None, model.new_prompt(3, torch.Generator().manual_seed(0))):
            hidden = [model.enter(model.stem(x, prompt)) for x in (one, other)]
            a, b = (model.head(model.continue_from(each)[1]) for each in hidden)
            remedy = "let `stem` begin with self.normalise(x), which quantises the network's input"
            assert torch.equal(a, b), f"images go past the input quantizer: {remedy}"


def _first_layer_reads_the_images(model: Model, x: Tensor) -> None:
    """Fail if the first layer in module order does not read the images: quantizers assume that it does."""
    first = next(m for m in model.net.modules() if isinstance(m, nn.Linear | nn.Conv2d))
    seen: list[Tensor] = []
    handle = first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model(x)
        handle.remove()
        same = bool(seen) and torch.equal(seen[0], model.normalise(x))
    assert same, "the first layer among `net`'s modules does not read the images: register that layer first"


def model_runs_quantised(source: Any) -> None:
    """runs with the quantizers that support it, and every inserted module is called."""
    model: Model = source.skeleton()
    images = torch.rand(2, 3, model.input_size, model.input_size)
    for name in QUICK_QUANTIZERS:
        quantizer: Quantizer = registry.load("quantizers", name)()
        if quantizer.unsupported(model) is None:
            quantised = quantizer.quantize(copy.deepcopy(model).requires_grad_(False), images)
            assert_all_reached(model, quantised, images)


def model_has_norms(source: Any) -> None:
    """lists its normalisation layers with their blocks."""
    model: Model = source.skeleton()
    blocks = [n.block for n in model.norms()]
    assert blocks, "no norm layers"
    assert blocks == sorted(blocks), "norm layers must be in the order of the blocks"


def model_facts_agree(source: Any) -> None:
    """`family`, `num_classes` and `input_size` are those of the model it builds."""
    model: Model = source.skeleton()
    for fact in ("family", "num_classes", "input_size"):
        assert getattr(model, fact) == getattr(source, fact), f"`{fact}` differs"
