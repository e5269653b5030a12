"""The quantisers' common ground: fake quantisation, quantised layers, and the uniform scheme."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from tta_bench.api import Calibration, Domain, Model
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.models.micro import ResNetMicro, VimMicro, VitMicro
from tta_bench_quantizers._calibration.histogram import ValueHistogram
from tta_bench_quantizers._calibration.scales import affine_scale, symmetric_row_scales
from tta_bench_quantizers._core.activations import UniformActivation
from tta_bench_quantizers._core.fake_quantization import (
    affine,
    affine_codes,
    affine_parameters,
    dequantize,
    per_row,
    symmetric,
    symmetric_codes,
)
from tta_bench_quantizers._core.layers import QuantConv2d, QuantLayer, QuantLinear, quantized_layer
from tta_bench_quantizers._core.packing import Packing, packed_bytes
from tta_bench_quantizers.fp32 import Fp32
from tta_bench_quantizers.uniform import UniformQuantizer

MICRO = [VitMicro, ResNetMicro, VimMicro]
CLEAN = Domain("clean", 0)
Build = Callable[[], Model]


def calibrate(quantizer: UniformQuantizer, model: Model, images: Tensor) -> Calibration:
    return quantizer.calibrate(model, images, lambda *_: None)


def histogram(*batches: Tensor) -> ValueHistogram:
    seen = ValueHistogram()
    for batch in batches:
        seen.see(batch)
    return seen


# -- pure functions --------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", range(2, 9))
def test_symmetric_has_all_levels_and_clips_at_the_ends(bits: int) -> None:
    x = torch.linspace(-300, 300, 60_001)
    levels = symmetric(x, torch.tensor(0.5), bits).unique()
    assert len(levels) == 2**bits
    assert levels[0] == -0.5 * 2 ** (bits - 1)
    assert levels[-1] == 0.5 * (2 ** (bits - 1) - 1)


@pytest.mark.parametrize("bits", range(2, 9))
def test_affine_has_all_levels_and_clips_at_the_ends(bits: int) -> None:
    zero = torch.tensor(1)
    levels = affine(torch.linspace(-300, 300, 60_001), torch.tensor(0.5), zero, bits).unique()
    assert len(levels) == 2**bits
    assert levels[0] == -0.5
    assert levels[-1] == 0.5 * (2**bits - 2)


def test_rounds_half_to_even() -> None:
    x = torch.tensor([-1.5, -0.5, 0.5, 1.5, 2.5])
    assert symmetric(x, torch.tensor(1.0), 8).tolist() == [-2, 0, 0, 2, 2]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_no_zero_point_is_needed_at_run_time(bits: int) -> None:
    x = torch.randn(64, 257) * 3
    scale = torch.rand(64, 1) * 0.2 + 1e-3
    zero = torch.randint(0, 2**bits, (64, 1))
    with_zero = scale * ((x / scale).round().add(zero).clamp(0, 2**bits - 1) - zero)
    assert torch.equal(affine(x, scale, zero, bits), with_zero)
    one = UniformActivation(scale[0, 0], zero[0, 0], bits)
    assert torch.equal(one(x[0]), with_zero[0])


def test_quantising_leaves_its_input_alone() -> None:
    x = torch.randn(8, 8)
    before = x.clone()
    UniformActivation(torch.tensor(0.1), torch.tensor(3), 4)(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("groups", [1, 3, 12])
def test_codes_stand_for_the_fake_quantised_weight(groups: int) -> None:
    w, scale = torch.randn(12, 5, 3, 3), torch.rand(groups) + 0.05
    codes = symmetric_codes(w, scale, 4)
    assert codes.dtype == torch.int8
    assert torch.equal(dequantize(codes, scale), symmetric(w, per_row(scale, w), 4))
    zero = torch.randint(0, 16, (groups,))
    codes = affine_codes(w, scale, zero, 4)
    assert codes.dtype == torch.uint8
    expected = affine(w, per_row(scale, w), per_row(zero, w), 4)
    assert torch.equal(dequantize(codes, scale, zero), expected)


def test_least_error_scales_beat_the_whole_range_at_few_bits() -> None:
    w, x = torch.randn(16, 512), torch.randn(10_000)
    errors = []
    for rule in ("minmax", "mse"):
        rows = symmetric_row_scales(w, 3, rule)[:, None]
        s, z = affine_scale(histogram(x), 3, rule)
        errors.append([(symmetric(w, rows, 3) - w).norm(), (affine(x, s, z, 3) - x).norm()])
    assert errors[1][0] < 0.8 * errors[0][0]
    assert errors[1][1] < 0.8 * errors[0][1]


def test_a_histogram_forgets_nothing_when_larger_values_come() -> None:
    """Ends, counts and sums are exact in any order; bins are as fine as if the largest had come first."""
    rng = torch.Generator().manual_seed(0)
    batches = [torch.randn(5000, generator=rng) * size for size in (0.0, 1e-3, 1.0, 300.0)]
    values = torch.cat(batches).double()
    for order in (batches, batches[::-1]):
        seen = histogram(*order)
        assert (seen.low, seen.high) == (values.min(), values.max())
        points, counts = seen.points()
        assert counts.sum() == len(values)
        assert torch.isclose((points * counts).sum(), values.sum(), rtol=1e-12)
        assert (points.diff() > 0).all()
    forward, backward = histogram(*batches).points(), histogram(*batches[::-1]).points()
    assert torch.equal(forward[1], backward[1])
    assert torch.allclose(forward[0], backward[0], rtol=1e-12, atol=0)


def test_a_scale_is_that_of_a_search_over_all_values() -> None:
    """A rare far value counts once: a sample of 65 536 would miss it or count it too often."""
    rng = torch.Generator().manual_seed(0)
    x = torch.cat([torch.randn(200_000, generator=rng).relu(), torch.tensor([60.0, -0.5])])
    for bits in (3, 8):
        trials = [affine_parameters(x.min() * (i / 100), x.max() * (i / 100), bits) for i in range(1, 101)]
        errors = [(affine(x, *trial, bits) - x).double().square().sum() for trial in trials]
        assert affine_scale(histogram(*x.split(30_000)), bits, "mse") == trials[int(np.argmin(errors))]


def test_an_observer_takes_zeros_and_refuses_what_is_not_finite() -> None:
    scale, zero = affine_scale(histogram(torch.zeros(7)), 8, "mse")
    assert affine(torch.zeros(3), scale, zero, 8).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="not finite on the calibration images"):
        histogram(torch.tensor([1.0, torch.nan]))


def test_proposition_1_extra_loss_falls_with_the_square_of_the_levels() -> None:
    """A linear model under an OOD shift: L(ŵ) − L(w) ∝ 1/(2^n − 1)², for n-bit uniform weights."""
    rng = torch.Generator().manual_seed(0)
    w = torch.rand(512, 2000, generator=rng, dtype=torch.float64) * 2 - 1
    shift_variance, widths, extra = 0.5, range(2, 9), []
    for bits in widths:
        scale, zero = affine_parameters(w.min(), w.max(), bits)
        error = affine(w, scale, zero, bits) - w
        # E (ŵ(x+ε) − wx)² − E (wε)² with x ~ N(0, I), ε ~ N(0, σ²I)
        loss = (1 + shift_variance) * error.square() + 2 * shift_variance * error * w
        extra.append(loss.sum(1).mean().item())
    levels = np.array([2**bits - 1 for bits in widths])
    exponent = np.polyfit(np.log(levels), np.log(extra), 1)[0]
    assert exponent == pytest.approx(-2, abs=0.1)


# -- layers ----------------------------------------------------------------------------------------


def test_quantised_convolution_computes_what_its_float_form_would() -> None:
    conv = nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2).to(memory_format=torch.channels_last)
    scale = symmetric_row_scales(conv.weight, 8, "mse")
    new = quantized_layer(conv, symmetric_codes(conv.weight, scale, 8), scale, bits=8)
    assert isinstance(new, QuantConv2d)
    assert new.weight.stride() == conv.weight.stride()
    x = torch.randn(2, 4, 9, 9)
    torch.testing.assert_close(new(x), conv(x), atol=0.05, rtol=0.05)


def test_other_layers_have_no_quantised_form() -> None:
    with pytest.raises(TypeError, match="no quantised form"):
        quantized_layer(nn.Conv1d(2, 2, 3), torch.zeros(2, 2, 3), torch.ones(2), bits=8)


def test_new_codes_bring_a_new_weight() -> None:
    layer = QuantLinear(nn.Linear(3, 2), torch.zeros(2, 3, dtype=torch.int8), torch.ones(2), bits=4)
    layer.set_codes(torch.full((2, 3), 5, dtype=torch.int8))
    assert (layer.weight == 5).all()


def test_packed_bytes_counts_bits_scales_zeros_and_the_float_rest() -> None:
    model = VitMicro().skeleton()
    head = {"head": Packing(weight_bits=3, scales=10, zero_bits=30)}
    weights = model.net.head.weight.numel()
    saved = weights * 4 - (weights * 3 / 8 + 10 * 4 + 30 / 8)
    total = packed_bytes(model, {})
    assert total == sum(p.numel() for p in model.net.parameters()) * 4 == Fp32().packed_bytes(model)
    assert total - packed_bytes(model, head) == int(saved)


# -- the uniform scheme ----------------------------------------------------------------------------


@pytest.mark.parametrize("build", MICRO)
def test_fresh_reloaded_and_copied_models_are_bit_equal(build: type, images: Tensor) -> None:
    quantizer, x = UniformQuantizer(bits="W4A6"), images[:4]
    model, twin = build().build(), build().build()
    before = deepcopy(model.state_dict())
    calibration = calibrate(quantizer, model, images[:8])
    assert all(torch.equal(t, before[k]) for k, t in model.state_dict().items())
    norms = [(n.name, n.block, id(n.module)) for n in model.norms()]
    quantizer.install(model, calibration)
    quantizer.install(twin, load(save(calibration)))
    with torch.no_grad():
        logits = model(x)
        assert torch.equal(logits, twin(x))
        assert torch.equal(logits, deepcopy(model)(x))
    assert norms == [(n.name, n.block, id(n.module)) for n in model.norms()]
    layers = [m for m in model.modules() if isinstance(m, QuantLayer)]
    assert all(torch.equal(m.weight, m.recompute()) for m in layers)
    assert len(layers) * 4 == len(calibration)


@pytest.mark.parametrize("build", MICRO)
def test_w8a8_is_within_a_point_of_the_float_network(build: type, data: Cifar10Mini, images: Tensor) -> None:
    index = np.arange(500)
    x, labels = data.test_images(CLEAN, index), torch.from_numpy(data.test_labels()[index])
    model = build().build()
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == labels).float().mean()
        quantised = UniformQuantizer(bits="W8A8").quantize(model, images)
        assert abs((quantised(x).argmax(1) == labels).float().mean() - accuracy) <= 0.01


def test_edges_are_wider_and_the_network_input_is_quantised_before_pixel_prompts(images: Tensor) -> None:
    model = ResNetMicro().build()
    UniformQuantizer(bits="W4A4").quantize(model, images[:8])
    assert isinstance(model.input_quantizer, UniformActivation)
    assert model.input_quantizer.bits == model.net.conv1.bits == model.net.fc.bits == 8
    assert isinstance(model.net.conv1.input, nn.Identity)
    assert model.net.layer1[0].conv1.bits == model.net.layer1[0].conv1.input.bits == 4
    assert str(model.bits) == "W4A4"
    assert not model.differentiable


def test_refuses_other_widths() -> None:
    assert UniformQuantizer(bits="W2A8").bits == "W2A8"
    with pytest.raises(ValueError, match="'W1A8' does not fit: it must be a bit-width from W2A2 to W8A8"):
        UniformQuantizer(bits="W1A8")
    with pytest.raises(ValueError, match="'W8A8' does not fit: it must be FP32"):
        Fp32(bits="W8A8")


def test_progress_is_reported_by_site(images: Tensor) -> None:
    calls: list[tuple[int, int]] = []
    UniformQuantizer().calibrate(VimMicro().build(), images[:2], lambda *call: calls.append(call))
    assert calls == [(i, len(calls)) for i in range(1, len(calls) + 1)]


@pytest.mark.parametrize("build", MICRO)
def test_report_names_every_site_and_sees_the_bits(build: type, images: Tensor) -> None:
    floating = build().build()
    reports = {}
    for bits in ("W8A8", "W4A4"):
        scheme = UniformQuantizer(bits=bits, edge_bits=2)
        model = scheme.quantize(build().build(), images[:8])
        reports[bits] = scheme.report(model, floating, images[:4])
    layers = [r for r in reports["W8A8"] if r.weight_bits]
    assert len(layers) == len(UniformQuantizer().site_bits(floating))
    for eight, four in zip(reports["W8A8"], reports["W4A4"], strict=True):
        assert (eight.activation_bits, four.activation_bits) in ((8, 4), (None, None))
        assert eight.clip_rate is None or 0 <= eight.clip_rate < 0.2
        if eight.weight_snr_db is not None:
            assert eight.weight_snr_db > four.weight_snr_db + 10
            assert eight.output_snr_db > four.output_snr_db
