"""The transformer schemes: PTQ4ViT and AdaLog."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from timm.models import VisionTransformer
from torch import Tensor, nn

from tta_bench.api import Bits, Calibration, Domain, Model, Quantizer
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.models.imagenet import VitB
from tta_bench.models.micro import ResNetMicro, VimMicro, VitMicro
from tta_bench_quantizers._calibration.adaround import Schedule
from tta_bench_quantizers._calibration.blockwise import collect, gradient_loss
from tta_bench_quantizers._calibration.objectives import LayerObjective
from tta_bench_quantizers._calibration.site_data import SiteData, sample_rows
from tta_bench_quantizers._core.activations import CACHE_ELEMENTS
from tta_bench_quantizers._core.attention import DecomposedAttention, decompose_attention_
from tta_bench_quantizers._core.layers import QuantLayer, QuantMatmul
from tta_bench_quantizers._core.twin import GELU_DEPTH, twin_gelu, twin_softmax
from tta_bench_quantizers._core.vit_sites import vit_sites
from tta_bench_quantizers.adalog.fpcs import ScaleRange, search_affine, zero_points
from tta_bench_quantizers.adalog.logarithmic import (
    BASES,
    AdaLogActivation,
    R,
    adalog,
    fraction_table,
    level_table,
)
from tta_bench_quantizers.adalog.quantizer import AdaLog
from tta_bench_quantizers.adalog.reconstruction import learn_unit, units
from tta_bench_quantizers.adalog.reparametrize import Reparametrization, set_norm_
from tta_bench_quantizers.adalog.scores import gram_score, row_score
from tta_bench_quantizers.ptq4vit.quantizer import Ptq4Vit
from tta_bench_quantizers.ptq4vit.search import Ptq4VitSearch, search_layer
from tta_bench_quantizers.uniform import UniformQuantizer

CLEAN = Domain("clean", 0)
SCHEMES: dict[str, Quantizer] = {
    "ptq4vit": Ptq4Vit(bits="W8A8", candidates=30, rounds=1, rows=128),
    "adalog": AdaLog(bits="W4A4", rounds=1),
}


@pytest.fixture(scope="module")
def calibrations(images: Tensor) -> dict[str, Calibration]:
    """One calibration of each scheme: the rest of the file reads them."""
    torch.set_num_threads(1)
    model = VitMicro().build()
    return {name: q.calibrate(model, images, lambda *_: None) for name, q in SCHEMES.items()}


def quantised(name: str, calibrations: dict[str, Calibration]) -> Model:
    return SCHEMES[name].install(VitMicro().build(), calibrations[name])


def snr(exact: Tensor, noisy: Tensor) -> float:
    signal = exact - exact.mean(0)
    return float(10 * torch.log10(signal.square().sum() / (exact - noisy).square().sum()))


# -- quantisers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_twin_gelu_adds_its_branches_as_if_it_selected_one(bits: int) -> None:
    x, scale, half = torch.randn(50_000) * 2, torch.tensor(0.013), 2 ** (bits - 1)
    step = torch.where(x < 0, GELU_DEPTH / half, scale)
    selected = step * (x / step).round().clamp(-half, half - 1)
    quantised = twin_gelu(x, scale, bits)
    assert torch.equal(quantised, selected)
    assert len(quantised.unique()) <= 2**bits
    assert quantised.max() == scale * (half - 1)
    assert quantised.min() == -torch.tensor(GELU_DEPTH / half) * half


def test_twin_softmax_selects_in_the_paper_and_adds_in_the_release() -> None:
    x, bits, split = torch.rand(10_000) ** 4, 8, torch.tensor(2.0**-4)
    top = 2 ** (bits - 1) - 1
    low, high = split / top, torch.tensor(1 / top)
    below, above = low * (x / low).round(), high * (x / high).round()
    paper = twin_softmax(x, split, bits, "paper")
    assert torch.equal(paper, torch.where(x < split, below, above))
    assert len(paper.unique()) <= 2**bits
    offset = high * (split / high).round()
    released = twin_softmax(x, split, bits, "released")
    torch.testing.assert_close(released, torch.where(x < split, below + offset, above + split))
    assert offset == pytest.approx(0.063, abs=1e-3)


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_adalog_table_is_as_coarse_as_its_integers(bits: int) -> None:
    steps = 2 ** (bits + 1) - 2
    exact = 2.0 ** (-torch.arange(R) / R)
    assert (fraction_table(bits) - exact).abs().max() <= 1 / (2 * steps) + 1e-7
    table = level_table(torch.tensor(BASES), bits)
    assert table.shape == (len(BASES), 2**bits + 1)
    assert (table[:, 0] == 1).all()
    assert (table[:, -1] == 0).all()


def test_adalog_is_exactly_zero_beyond_its_codes_and_follows_the_formula() -> None:
    bits, q, scale = 4, torch.tensor(37), torch.tensor(2.0)
    x = torch.cat([torch.tensor([0.0, 2 * 2.0**-17, 5.0]), torch.rand(5000) * 2])
    out = AdaLogActivation(scale, q, bits)(x)
    assert out[:3].tolist() == [0, 0, 2]
    assert torch.equal(out, scale * 2.0 ** -((x / scale).clamp(1e-15, 1).log2().neg().round())
                       * ((x / scale).clamp_min(1e-15).log2().neg().round() < 16))  # fmt: skip
    assert torch.equal(out, adalog(x, scale, q, bits))
    assert len(out.unique()) <= 2**bits + 1


def test_large_tensors_go_through_in_chunks_and_come_out_the_same() -> None:
    x = torch.rand(3, 2, CACHE_ELEMENTS // 4 + 3)
    quantiser = AdaLogActivation(torch.tensor(0.9), torch.tensor(50), 4, shift=0.1)
    apart = torch.stack([quantiser(row) for row in x.flatten(0, 1)]).view_as(x)
    assert torch.equal(quantiser(x), apart)
    assert torch.equal(quantiser(x.transpose(0, 2)), apart.transpose(0, 2))


def test_adalog_takes_many_bases_at_once() -> None:
    x, q = torch.rand(100), torch.tensor([10, 37, 90])
    together = adalog(x, torch.ones(3, 1), q[:, None], 3)
    alone = [adalog(x, torch.tensor(1.0), one, 3) for one in q]
    assert torch.equal(together, torch.stack(alone))


# -- search ----------------------------------------------------------------------------------------


def test_zero_points_of_the_search() -> None:
    assert zero_points(4, 2**3).tolist() == list(range(4, 12))
    assert zero_points(3, 2**2).tolist() == list(range(2, 6))
    assert zero_points(4, 2**4).tolist() == list(range(16))
    assert len(zero_points(8, 2**8)) == 16


def test_progressive_search_finds_the_minimum_of_every_group() -> None:
    goal = torch.tensor([0.31, 0.78, 0.55])
    scales = ScaleRange(torch.full((3,), 0.1), torch.full((3,), 1.0), 1e-4)
    scale, zero = search_affine(
        scales, torch.arange(8), lambda s, z: (s - goal).square() + (z - torch.tensor([1, 5, 7])).square()
    )
    torch.testing.assert_close(scale, goal, atol=1e-4, rtol=0)
    assert zero.tolist() == [1, 5, 7]


def test_gram_form_scores_like_the_rows_it_stands_for() -> None:
    x, w = torch.randn(400, 24), torch.randn(6, 24)
    objective = LayerObjective(w, x, x @ w.t())
    s, z = torch.rand(9, 6) * 0.5 + 0.1, torch.full((9, 6), 8.0)
    constant = objective.target.double().square().sum(0)
    gram = gram_score(objective, 4)(s, z) + constant
    torch.testing.assert_close(gram.float(), row_score(objective, 4)(s, z), rtol=1e-4, atol=1e-3)


def test_a_gradient_of_zeros_falls_back_to_plain_error() -> None:
    rng = torch.Generator().manual_seed(0)
    layer = nn.Linear(16, 8)
    x = torch.randn(4, 10, 16, generator=rng)
    edges = ((x.min(),), (x.max(),))
    search = Ptq4VitSearch(Bits(8, 8), candidates=50, rounds=2, twin_mode="paper")
    found = []
    for grad in (None, torch.zeros(4, 10, 8)):
        data = SiteData(x, None, layer(x).detach(), grad, torch.ones(4, 10, 1), *edges)
        found.append(search_layer(search, data, layer, groups=1, gelu=False))
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])
    least = 0.01 * layer.weight.abs().max() / 127.5
    assert found[1]["w_scale"] > 10 * least


def test_sampled_rows_stand_for_all_and_keep_the_class_token() -> None:
    rows, weights = sample_rows(65, 16, torch.Generator().manual_seed(0))
    assert rows[0] == 0
    assert len(rows.unique()) == 16
    assert weights.square().sum() == pytest.approx(65)


def test_collected_gradients_are_those_of_one_ordinary_backward_pass(images: Tensor) -> None:
    model, x = VitMicro().build(), images[:4]
    decompose_attention_(model.net)
    site = "blocks.2.attn.matmul1"
    outputs: list[Tensor] = []
    handle = model.net.get_submodule(site).register_forward_hook(lambda *call: outputs.append(call[2]))
    loss = gradient_loss("fisher")
    assert loss is not None
    expected = torch.autograd.grad(loss(model(x.clone().requires_grad_())), outputs)[0]
    handle.remove()
    groups = collect(model, [site], x, 0, gradient_loss("fisher"))
    data = next(group[site] for group in groups if site in group)
    torch.testing.assert_close(data.grad, expected, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(data.out, outputs[0].detach(), atol=1e-5, rtol=1e-4)


# -- structure -------------------------------------------------------------------------------------


def test_vit_b_has_74_sites() -> None:
    with torch.device("meta"):
        model = VitB(weights="random").skeleton()
    kinds = list(vit_sites(model).values())
    assert len(kinds) == 74
    assert [kinds.count(k) for k in ("conv", "qkv", "linear", "gelu", "scores", "values")] == [
        1,
        12,
        25,
        12,
        12,
        12,
    ]
    floats = sum(p.numel() for p in model.net.parameters())
    for quantizer in (Ptq4Vit(bits="W4A4"), AdaLog(bits="W4A4")):
        assert 0.12 < quantizer.packed_bytes(model) / (floats * 4) < 0.14


@pytest.mark.parametrize("norm", [False, True])
def test_decomposed_attention_is_timms(norm: bool) -> None:
    net = VisionTransformer(
        img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=4, qk_norm=norm, num_classes=3
    ).eval()
    names = [name for name, _ in net.named_parameters()]
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        before = net(x)
        decompose_attention_(net)
        torch.testing.assert_close(net(x), before, atol=1e-5, rtol=1e-4)
    assert isinstance(net.blocks[0].attn, DecomposedAttention)
    assert sorted(names) == sorted(name for name, _ in net.named_parameters())


def test_reparametrising_a_norm_does_not_change_the_function() -> None:
    norm, layer = nn.LayerNorm(24), nn.Linear(24, 40)
    nn.init.normal_(norm.weight)
    x = torch.randn(5, 7, 24)
    with torch.no_grad():
        before = layer(norm(x))
        change = Reparametrization.of(torch.rand(24) + 0.2, torch.randint(0, 16, (24,)))
        set_norm_(norm, **change.norm(norm))
        weight, bias = change.layer(layer.weight, layer.bias)
        after = nn.functional.linear(norm(x), weight, bias)
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)


# -- the schemes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMES)
def test_fresh_reloaded_and_copied_models_are_bit_equal(
    name: str, calibrations: dict[str, Calibration], images: Tensor
) -> None:
    model, floating = quantised(name, calibrations), VitMicro().build()
    stored = load(save(calibrations[name]))
    twin = SCHEMES[name].install(VitMicro().build(), stored)
    with torch.no_grad():
        logits = model(images)
        assert torch.equal(logits, twin(images))
        assert torch.equal(logits, deepcopy(model)(images))
    layers = [m for m in model.modules() if isinstance(m, QuantLayer)]
    products = [m for m in model.modules() if isinstance(m, QuantMatmul)]
    assert len(layers) + len(products) == len(vit_sites(floating)) == 6 * 6 + 2
    assert all(torch.equal(m.weight, m.recompute()) for m in layers)
    assert [(n.name, n.block) for n in model.norms()] == [(n.name, n.block) for n in floating.norms()]


@pytest.mark.parametrize("name", SCHEMES)
def test_three_prompts_may_be_inserted(
    name: str, calibrations: dict[str, Calibration], images: Tensor
) -> None:
    model, rng = quantised(name, calibrations), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for prompt, tokens in ((None, 65), (model.new_prompt(3, rng), 68)):
            hidden = model.stem(images[:2], prompt)
            assert hidden.shape[1] == tokens
            probes, z = model.continue_from(model.enter(hidden))
            assert model.head(z).isfinite().all()
            assert len(probes) == 6


@pytest.mark.parametrize("grad_mode", ["fisher", "released", "mse"])
@pytest.mark.parametrize("twin_mode", ["paper", "released"])
def test_ptq4vit_w8a8_is_close_to_the_float_network(grad_mode: str, twin_mode: str, images: Tensor) -> None:
    model = VitMicro().build()
    quantizer = Ptq4Vit(bits="W8A8", candidates=20, rounds=1, rows=64)
    quantizer.grad_mode, quantizer.twin_mode = grad_mode, twin_mode  # type: ignore[assignment]
    with torch.no_grad():
        exact = model(images)
        assert snr(exact, quantizer.quantize(model, images[:8])(images)) > 15


def test_ptq4vit_w8a8_is_within_a_point_of_the_float_network(
    data: Cifar10Mini, calibrations: dict[str, Calibration]
) -> None:
    index = np.arange(500)
    x, labels = data.test_images(CLEAN, index), torch.from_numpy(data.test_labels()[index])
    with torch.no_grad():
        scores = [
            (model(x).argmax(1) == labels).float().mean()
            for model in (VitMicro().build(), quantised("ptq4vit", calibrations))
        ]
    assert abs(scores[0] - scores[1]) <= 0.01


def test_adalog_w4a4_is_closer_to_the_float_network_than_uniform(
    data: Cifar10Mini, images: Tensor, calibrations: dict[str, Calibration]
) -> None:
    x = data.test_images(CLEAN, np.arange(200))
    uniform = UniformQuantizer(bits="W4A4", edge_bits=4).quantize(VitMicro().build(), images)
    with torch.no_grad():
        exact = VitMicro().build()(x)
        assert snr(exact, quantised("adalog", calibrations)(x)) > snr(exact, uniform(x))


def test_adalog_reconstruction_brings_a_block_closer(
    images: Tensor, calibrations: dict[str, Calibration]
) -> None:
    plain, floating = calibrations["adalog"], VitMicro().build()
    unit = list(units(floating, images))[3]
    assert unit.name == "blocks.2"
    model = quantised("adalog", calibrations)
    learned = learn_unit(unit, model.net, floating.net, Schedule(steps=60, lr=0.2))
    softmax = "blocks.2.attn.matmul2.a_scale"
    assert set(learned) - set(plain) == {softmax}  # 1 until it is learnt
    assert learned[softmax].shape == ()
    assert 0 < abs(float(learned[softmax]) - 1) < 0.01  # 60 steps of at most 4e-5
    installed = SCHEMES["adalog"].install(VitMicro().build(), plain | learned).net
    assert installed.get_submodule("blocks.2.attn.matmul2").a.scale == learned[softmax]
    errors = []
    for calibration in (plain, plain | learned):
        block = SCHEMES["adalog"].install(VitMicro().build(), calibration).blocks[2]
        errors.append(float((block(unit.inputs) - unit.targets).square().mean()))
    assert errors[1] < 0.9 * errors[0]


def test_adalog_reconstruction_goes_over_all_units(
    images: Tensor, calibrations: dict[str, Calibration], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = calibrations["adalog"]
    monkeypatch.setattr(AdaLog, "_search", lambda *_: dict(plain))
    quantizer = AdaLog(bits="W4A4", reconstruction="adaround", recon_steps=1, recon_images=4)
    assert quantizer.calibration_images == 32
    calls: list[tuple[int, int]] = []
    found = quantizer.calibrate(VitMicro().build(), images, lambda *call: calls.append(call))
    assert calls == [(i, 38 + 8) for i in range(1, 9)]  # the search, replaced here, would tell 38 more
    assert found.keys() - plain.keys() == {f"blocks.{i}.attn.matmul2.a_scale" for i in range(6)}
    assert {key: found[key].dtype for key in plain} == {key: t.dtype for key, t in plain.items()}
    extra = quantizer.packed_bytes(VitMicro().build()) - AdaLog(bits="W4A4").packed_bytes(VitMicro().build())
    assert extra == 6 * 4  # a softmax scale for each block


@pytest.mark.parametrize("name", SCHEMES)
def test_report_names_every_site(name: str, calibrations: dict[str, Calibration], images: Tensor) -> None:
    reports = SCHEMES[name].report(quantised(name, calibrations), VitMicro().build(), images[:4])
    assert {r.site for r in reports} == set(vit_sites(VitMicro().build()))
    assert all(r.output_snr_db > 3 for r in reports)
    assert all(r.weight_snr_db is None or r.weight_snr_db > 10 for r in reports)
    assert all(r.clip_rate is None or 0 <= r.clip_rate < 0.5 for r in reports)


def test_refusals_give_a_reason() -> None:
    for quantizer in (Ptq4Vit(), AdaLog()):
        reason = "quantises attention and GELU sites, and resnet-micro has none"
        assert quantizer.unsupported(ResNetMicro().build()) == reason
        assert "vim-micro has none" in (quantizer.unsupported(VimMicro().build()) or "")
        assert quantizer.unsupported(VitMicro().build()) is None
    with pytest.raises(ValueError, match="'W4A9' does not fit: it must be a bit-width from W2A2 to W8A8"):
        AdaLog(bits="W4A9")
    odd = VitMicro().build()
    odd.net.blocks[1].norm1 = nn.RMSNorm(64)
    assert "blocks.1.attn.qkv alone" in (AdaLog().unsupported(odd) or "")
    assert Ptq4Vit().unsupported(odd) is None
