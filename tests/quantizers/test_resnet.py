"""MQBench's scheme on ResNets, and AdaRound."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor, nn
from torch.nn.functional import linear

from tta_bench.api import Calibration, Domain, Model
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.models.imagenet import ResNet50
from tta_bench.models.micro import ResNetMicro, VitMicro
from tta_bench.models.resnet import ResNetModel
from tta_bench_quantizers._calibration.adaround import (
    Schedule,
    SoftRounding,
    learn_rounding,
    short_schedule,
    squared_error,
)
from tta_bench_quantizers._calibration.observers import observing
from tta_bench_quantizers._core.fake_quantization import affine_codes, dequantize
from tta_bench_quantizers._core.layers import QuantLayer
from tta_bench_quantizers._core.straight_through import DifferentiableActivation
from tta_bench_quantizers.mqbench.observer import least_error, weight_parameters
from tta_bench_quantizers.mqbench.quantizer import MqBench
from tta_bench_quantizers.mqbench.sites import layer_units, tensor_sites

CLEAN = Domain("clean", 0)
HALF = (0.5, 0.5, 0.5)


@pytest.fixture(scope="module")
def pristine() -> Model:
    return ResNetMicro().build()


@pytest.fixture(scope="module")
def w2a4(pristine: Model, images: Tensor) -> Calibration:
    return calibrated(MqBench(bits="W2A4", reconstruction="none"), pristine, images)


def calibrated(quantizer: MqBench, model: Model, images: Tensor) -> Calibration:
    return quantizer.calibrate(deepcopy(model), images, lambda *_: None)


def installed(bits: str, model: Model, calibration: Calibration) -> Model:
    return MqBench(bits=bits).install(deepcopy(model), calibration)


def basic_model() -> Model:
    torch.manual_seed(0)
    net = ResNet(BasicBlock, (1, 2, 1, 1), num_classes=10, channels=(8, 8, 16, 16), stem_width=8)
    facts = dict(name="basic", num_classes=10, input_size=32, mean=HALF, std=HALF)
    return ResNetModel(net, **facts).eval().requires_grad_(False)


# -- AdaRound ----------------------------------------------------------------------------------------


def random_layer() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    mixed = torch.randn(64, 24, generator=rng) @ torch.randn(24, 24, generator=rng)
    return torch.randn(16, 24, generator=rng) * 0.1, mixed


def test_soft_weight_starts_at_the_float_weight() -> None:
    weight, _ = random_layer()
    scale, zero = weight_parameters(weight, 4)
    rounding = SoftRounding(weight, scale, zero, 4)
    free = rounding.slope > 0
    assert free.float().mean() > 0.9
    soft = rounding.weight(rounding.share())
    assert torch.allclose(soft[free], weight[free], atol=1e-6)


def test_soft_weight_equals_the_formula_at_any_choice() -> None:
    weight, _ = random_layer()
    scale, zero = weight_parameters(weight, 2)
    rounding = SoftRounding(weight, scale, zero, 2)
    share = torch.rand(weight.shape, generator=torch.Generator().manual_seed(1))
    code = ((weight / scale[:, None]).floor() + share + zero[:, None]).clamp(0, 3)
    expected = scale[:, None] * (code - zero[:, None])
    assert torch.allclose(rounding.weight(share), expected, atol=1e-6)


def test_learned_rounding_beats_nearest_and_requantises_to_itself() -> None:
    weight, x = random_layer()
    scale, zero = weight_parameters(weight, 2)
    nearest = affine_codes(weight, scale, zero, 2)
    target = linear(x, weight)
    rounding = SoftRounding(weight, scale, zero, 2)
    codes = learn_rounding(
        {"w": rounding}, lambda x, w: linear(x, w["w"]), x, target, Schedule(400, lr=1e-2, batch_size=32)
    )["w"]
    written = dequantize(codes, scale, zero)
    assert torch.equal(affine_codes(written, scale, zero, 2), codes)
    learned_error = squared_error(linear(x, written), target)
    assert learned_error < 0.8 * squared_error(linear(x, dequantize(nearest, scale, zero)), target)


def test_one_unit_may_hold_several_weights_and_learn_more_beside() -> None:
    weight, x = random_layer()
    weights = {"up": weight, "down": weight.T.contiguous()}
    roundings = {n: SoftRounding(w, *weight_parameters(w, 3), bits=3) for n, w in weights.items()}
    gain = torch.ones((), requires_grad=True)
    seen: list[float] = []
    codes = learn_rounding(
        roundings,
        lambda x, w: gain * linear(linear(x, w["up"]).relu(), w["down"]),
        x,
        linear(linear(x, weight).relu(), weights["down"]),
        Schedule(5),
        on_step=lambda: seen.append(float(gain.grad)),  # type: ignore[arg-type]
    )
    assert len(seen) == 5
    assert {name: c.shape for name, c in codes.items()} == {"up": (16, 24), "down": (24, 16)}


def test_penalty_waits_for_the_warm_up_then_falls_linearly() -> None:
    betas = [Schedule(100).beta(step) for step in (0, 19, 20, 60)]
    assert betas == [None, None, 20.0, 11.0]


def test_fewer_steps_are_longer_but_at_most_tenfold() -> None:
    rates = [short_schedule(steps).lr for steps in (300, 4_000, 20_000, 40_000)]
    assert rates == pytest.approx([1e-2, 5e-3, 1e-3, 1e-3])


# -- observers and quantisers ------------------------------------------------------------------------


def test_observer_errs_less_than_the_full_range_and_survives_dead_channels() -> None:
    rows = torch.randn(4, 500, generator=torch.Generator().manual_seed(0))
    rows[3] = 0
    best = least_error(rows, rows.amin(1), rows.amax(1), 3, 80)
    full = least_error(rows, rows.amin(1), rows.amax(1), 3, 1)

    def error(parameters: tuple[Tensor, Tensor]) -> Tensor:
        return (dequantize(affine_codes(rows, *parameters, bits=3), *parameters) - rows).square().sum(1)

    assert (error(best)[:3] < error(full)[:3]).all()
    assert error(best)[3] == 0


def inputs_seen(model: Model, readers: list[str], images: Tensor) -> dict[str, Tensor]:
    """All values that reach the layers."""
    parts: dict[str, list[Tensor]] = {reader: [] for reader in readers}
    with observing(model.net, readers, lambda site, x, _: parts[site].append(x[0].flatten().clone())):
        for batch in images.split(8):
            model(batch)
    return {reader: torch.cat(values) for reader, values in parts.items()}


def test_activation_scales_are_those_of_a_search_over_all_values(
    pristine: Model, images: Tensor, w2a4: Calibration
) -> None:
    sites, bits = tensor_sites(pristine), MqBench(bits="W2A4").activation_bits(pristine)
    values = inputs_seen(deepcopy(pristine), [site.reader for site in sites], images)
    equal = []
    for site in sites:
        x = values[site.reader][None]
        scale, zero = least_error(x, x.amin(1), x.amax(1), bits[site.producer], 95)
        found = w2a4[f"{site.producer}.a_scale"], w2a4[f"{site.producer}.a_zero"]
        equal.append(found == (scale[0], zero[0]))
    assert len(equal) == 35
    assert sum(equal) >= 33  # neighbouring trials may err equally


def test_gradients_pass_the_quantiser_where_it_does_not_clip() -> None:
    quantiser = DifferentiableActivation(torch.tensor(0.1), torch.tensor(3), 4)
    x = torch.linspace(-1, 2, 301)
    traced = x.clone().requires_grad_()
    out = quantiser(traced)
    out.sum().backward()
    assert torch.equal(out.detach(), quantiser(x))
    assert torch.equal(traced.grad == 0, quantiser.clipped(x))


@pytest.mark.parametrize("zero", [0, 3])
def test_a_quantiser_can_take_over_the_relu_before_it(zero: int) -> None:
    plain, rectifying = (DifferentiableActivation(torch.tensor(0.1), torch.tensor(zero), 4) for _ in range(2))
    rectifying.fuses_relu = True
    x = torch.cat([torch.linspace(-1, 2, 301), torch.tensor([torch.inf, -torch.inf])])
    for form in (rectifying, rectifying.eager):
        assert torch.equal(form(x), plain(x.relu()))
    assert torch.equal(rectifying.clipped(x), plain.clipped(x.relu()))
    traced, apart = (x[:301].clone().requires_grad_() for _ in range(2))
    rectifying(traced).sum().backward()
    plain(apart.relu()).sum().backward()
    assert torch.equal(traced.grad, apart.grad)


# -- sites -------------------------------------------------------------------------------------------


def test_resnet50_has_54_weights_and_50_activations() -> None:
    model, quantizer = ResNet50().skeleton(), MqBench(bits="W2A4")
    weights, tensors = quantizer.weight_bits(model), quantizer.activation_bits(model)
    assert (len(weights), len(tensors)) == (54, 50)
    assert {s for s, bits in weights.items() if bits == 8} == {"conv1", "fc"}
    assert {s for s, bits in tensors.items() if bits == 8} == {"input", "global_pool"}
    assert sorted(unit[0] for unit in layer_units(model)) == sorted(weights)


def test_basic_blocks_are_quantised_too() -> None:
    model = basic_model()
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    quantizer = MqBench(bits="W3A4", recon_steps=2)
    assert len(quantizer.activation_bits(model)) == 2 + 5 + 4 + 1
    quantised = quantizer.quantize(deepcopy(model), x)
    layers = [m for m in quantised.net.modules() if isinstance(m, QuantLayer)]
    assert len(layers) == len(quantizer.weight_bits(model))
    assert quantised(x).isfinite().all()


def test_shortcuts_carry_quantised_values(pristine: Model, images: Tensor, w2a4: Calibration) -> None:
    model = installed("W2A4", pristine, w2a4)
    for index, producer in ((0, "maxpool"), (1, "layer1.0.act3"), (5, "layer2.2.act3")):
        seen: list[Tensor] = []
        handle = model.blocks[index].register_forward_pre_hook(lambda _, x, seen=seen: seen.append(x[0]))
        model(images[:4])
        handle.remove()
        codes = seen[0] / w2a4[f"{producer}.a_scale"]
        assert torch.allclose(codes, codes.round(), atol=1e-4)
        assert len(seen[0].unique()) <= 16


def test_network_input_is_quantised_under_the_prompt(
    pristine: Model, images: Tensor, w2a4: Calibration
) -> None:
    model = installed("W2A4", pristine, w2a4)
    x = model.normalise(images[:4])
    assert 16 < len(x.unique()) <= 256
    assert torch.equal(model.stem(images[:4]), model.net.conv1(x))


def test_last_features_stay_float_until_the_classifier(
    pristine: Model, images: Tensor, w2a4: Calibration
) -> None:
    model = installed("W2A4", pristine, w2a4)
    z = model.features(images[:4])
    assert torch.equal(model.head(z), model.head(model.classifier.input(z)))


# -- the scheme --------------------------------------------------------------------------------------


def test_calibration_survives_safetensors(pristine: Model, images: Tensor, w2a4: Calibration) -> None:
    fresh, read = installed("W2A4", pristine, w2a4), installed("W2A4", pristine, load(save(w2a4)))
    assert torch.equal(fresh(images[:4]), read(images[:4]))
    for module in read.net.modules():
        if isinstance(module, QuantLayer):
            assert torch.equal(module.weight, module.recompute())


def test_batch_norm_stays_adaptable(pristine: Model, images: Tensor, w2a4: Calibration) -> None:
    model = installed("W2A4", pristine, w2a4)
    assert [n.name for n in model.norms()] == [n.name for n in pristine.norms()]
    before = model(images)
    model.norms()[3].module.weight.mul_(1.5)
    moved = model(images)
    assert not torch.equal(before, moved)
    model.use_batch_statistics()
    assert not torch.equal(moved, model(images))


def test_batch_norm_may_be_swapped(pristine: Model, images: Tensor, w2a4: Calibration) -> None:
    model = installed("W2A4", pristine, w2a4)
    before = model(images)
    model.blocks[0].bn1 = nn.Sequential(model.blocks[0].bn1, Shift())
    assert not torch.equal(before, model(images))


class Shift(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def accuracy(model: Model, data: Cifar10Mini, count: int) -> float:
    x, y = data.test_images(CLEAN, np.arange(count)), torch.tensor(data.test_labels()[:count])
    with torch.no_grad():
        hits = sum(
            int((model(b).argmax(1) == t).sum()) for b, t in zip(x.split(100), y.split(100), strict=True)
        )
    return 100 * hits / count


def test_eight_bits_cost_less_than_a_point(pristine: Model, images: Tensor, data: Cifar10Mini) -> None:
    quantised = MqBench().quantize(deepcopy(pristine), images)
    assert accuracy(quantised, data, 500) > accuracy(pristine, data, 500) - 1


@pytest.mark.slow
def test_adaround_helps_at_two_bits(
    pristine: Model, images: Tensor, data: Cifar10Mini, w2a4: Calibration
) -> None:
    quantizer = MqBench(bits="W2A4", recon_steps=30)
    calls: list[tuple[int, int]] = []
    learned = quantizer.calibrate(deepcopy(pristine), images, lambda *call: calls.append(call))
    total = 2 * len(quantizer.weight_bits(pristine))
    assert calls == [(i, total) for i in range(1, total + 1)]
    changed = {key for key in w2a4 if not torch.equal(w2a4[key], learned[key])}
    assert {key.rpartition(".")[2] for key in changed} == {"codes"}
    nearest, rounded = installed("W2A4", pristine, w2a4), installed("W2A4", pristine, learned)
    assert accuracy(rounded, data, 500) > accuracy(nearest, data, 500) + 10


@pytest.mark.parametrize(
    ("quantizer", "wanted"),
    [
        (MqBench(recon_images=1024), 32),
        (MqBench(bits="W2A4"), 32),
        (MqBench(bits="W4A4", recon_images=1024), 1024),
        (MqBench(bits="W2A4", reconstruction="none", recon_images=64), 32),
        (MqBench(reconstruction="adaround", recon_images=64), 64),
    ],
)
def test_asks_for_the_images_it_uses(quantizer: MqBench, wanted: int) -> None:
    assert quantizer.calibration_images == wanted


def test_refuses_with_a_reason() -> None:
    assert "is a vit" in (MqBench().unsupported(VitMicro().skeleton()) or "")
    for bits in ("W1A4", "W8A16"):
        with pytest.raises(ValueError, match=f"bits: '{bits}' does not fit"):
            MqBench(bits=bits)


def test_refuses_squeezing_blocks() -> None:
    model = basic_model()
    model.blocks[0].se = nn.Identity()
    assert "plain blocks" in (MqBench().unsupported(model) or "")


def test_two_bits_pack_into_less() -> None:
    model = ResNetMicro().skeleton()
    sizes = [MqBench(bits=bits).packed_bytes(model) for bits in ("W8A8", "W4A4", "W2A4")]
    assert sizes == sorted(sizes, reverse=True)
