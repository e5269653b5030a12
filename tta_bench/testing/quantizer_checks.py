"""Checks of quantizers, on a short stream."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch

from tta_bench.api import Bits, BlockwiseQuantizer, Calibration, Model, Quantizer
from tta_bench.footprint.fake_tensors import fake_tensors
from tta_bench.footprint.skeleton import fake_
from tta_bench.testing.bench import Bench, assert_all_reached, assert_same


def _calibrate(bench: Bench) -> Calibration:
    quantizer: Quantizer = bench.make()
    images = quantizer.calibration_set(bench.clean)
    return quantizer.calibrate(copy.deepcopy(bench.pristine), images, lambda *_: None)


def _quantised(bench: Bench) -> tuple[Quantizer, Model, Calibration]:
    """A quantizer, a model that it has quantised, and its calibration, which all checks share."""
    if bench.calibration is None:
        bench.calibration = _calibrate(bench)
    calibration = copy.deepcopy(bench.calibration)
    quantizer: Quantizer = bench.make()
    return quantizer, quantizer.install(copy.deepcopy(bench.pristine), calibration), calibration


def _assert_same_tensors(first: Calibration, second: Calibration) -> None:
    assert first.keys() == second.keys(), "the second calibration has other sites"
    for site in first:
        assert torch.equal(first[site], second[site]), f"{site} differs"


def quantised_runs(bench: Bench) -> None:
    """the quantised model runs, and its `bits` and `differentiable` are the quantizer's."""
    quantizer, model, _ = _quantised(bench)
    assert model(bench.images[0]).isfinite().all(), "logits are not finite"
    assert str(model.bits) == str(Bits.parse(quantizer.bits)), f"`bits` of the model is {model.bits}"
    assert model.differentiable == quantizer.differentiable, (
        "`differentiable` of the model differs from the quantizer's"
    )


def quantizers_are_reached(bench: Bench) -> None:
    """every module that it inserts is called in a forward pass."""
    assert_all_reached(bench.pristine, _quantised(bench)[1], bench.images[0])


def calibration_round_trip(bench: Bench) -> None:
    """a calibration that is saved and loaded gives the same outputs, bit for bit."""
    from safetensors.torch import load, save

    quantizer, model, calibration = _quantised(bench)
    if calibration:
        calibration = load(save({k: v.contiguous() for k, v in calibration.items()}))
    again = quantizer.install(copy.deepcopy(bench.pristine), calibration)
    assert_same([model(bench.images[0])], [again(bench.images[0])], "reloaded")


def calibration_is_deterministic(bench: Bench) -> None:
    """calibrating twice gives the same tensors."""
    first, second = _quantised(bench)[2], _calibrate(bench)
    _assert_same_tensors(first, second)


def calibration_goes_on(bench: Bench) -> None:
    """a calibration that was interrupted continues after its last finished block, with the same tensors."""
    quantizer: Quantizer = bench.make()
    if not isinstance(quantizer, BlockwiseQuantizer):
        return
    finished: dict[str, Calibration] = {}
    asked: list[str] = []

    def once(block: str, calibrate_block: Callable[[], Calibration]) -> Calibration:
        asked.append(block)
        if block not in finished:
            finished[block] = calibrate_block()
        return finished[block]

    def calibrate() -> Calibration:
        return quantizer.calibrate_blocks(copy.deepcopy(bench.pristine), bench.clean, lambda *_: None, once)

    whole = calibrate()
    assert len(asked) == len(finished), "two blocks have the same name"
    for block in asked[::4]:
        del finished[block]
    _assert_same_tensors(whole, calibrate())


def norms_stay_adaptable(bench: Bench) -> None:
    """normalisation layers keep their names and parameters."""
    _, model, _ = _quantised(bench)
    before = [n.name for n in bench.pristine.norms()]
    assert [n.name for n in model.norms()] == before, "norm layers were folded or renamed"


def prompts_fit(bench: Bench) -> None:
    """a forward pass with a prompt works."""
    _, model, _ = _quantised(bench)
    prompt = model.new_prompt(3, torch.Generator().manual_seed(0))
    _, z = model.continue_from(model.enter(model.stem(bench.images[0], prompt)))
    assert model.head(z).isfinite().all(), "logits are not finite"


def moves_to_a_device(bench: Bench) -> None:
    """the whole quantised model moves to a GPU (checked with fake CUDA tensors) unless it is `cpu_only`."""
    quantizer, model, _ = _quantised(bench)
    if quantizer.cpu_only:
        return
    with fake_tensors(), torch.no_grad():
        fake_(model, "cuda")
        x, prompt = bench.images[0].to("cuda"), model.new_prompt(3, torch.Generator().manual_seed(0))
        model.head(model.continue_from(model.enter(model.stem(x, prompt.to("cuda"))))[1])


def packed_is_smaller(bench: Bench) -> None:
    """`packed_bytes` is smaller than the float model, and large enough for its codes."""
    quantizer: Quantizer = bench.make()
    packed = quantizer.packed_bytes(bench.pristine)
    full = sum(p.nbytes for p in bench.pristine.parameters())
    bits = Bits.parse(quantizer.bits)
    assert packed >= full * min(bits.weight, 32) / 32 * 0.9, f"{packed} bytes cannot hold the codes"
    if bits.weight < 32:
        assert packed < full, f"{packed} bytes, the float model has {full}"
