"""PTQ4VM on Vision Mamba, and the network itself."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn.functional import linear

from tta_bench.api import Bits, Calibration, Domain, Model
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.models import selective_scan as scanning
from tta_bench.models.imagenet import VimS
from tta_bench.models.micro import ResNetMicro, VimMicro
from tta_bench.models.selective_scan import selective_scan
from tta_bench.models.vim import VimModel
from tta_bench.models.vision_mamba import MambaMixer, VisionMamba
from tta_bench_quantizers._core.layers import QuantLinear
from tta_bench_quantizers.ptq4vm.fit import row_scales, smoothing, token_parameters
from tta_bench_quantizers.ptq4vm.jlss import learn_scales
from tta_bench_quantizers.ptq4vm.quantizer import LAYERS, Ptq4Vm, linear_sites, mixer_output
from tta_bench_quantizers.ptq4vm.tokens import TokenActivation, extend_token_scales

TOKENS, CLS = 65, 32


@pytest.fixture(scope="module")
def pristine() -> Model:
    return VimMicro().build()


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def w8a8(pristine: Model, images: Tensor) -> Calibration:
    return Ptq4Vm().calibrate(deepcopy(pristine), images, lambda *_: None)


@pytest.fixture
def quantised(pristine: Model, w8a8: Calibration) -> Model:
    return Ptq4Vm().install(deepcopy(pristine), w8a8)


def tiny_model() -> Model:
    """Two blocks, nine patches: an odd number, so that the class token is not where it is mirrored."""
    torch.manual_seed(0)
    net = VisionMamba(img_size=12, patch_size=4, embed_dim=16, depth=2, d_state=4, num_classes=5)
    half = (0.5, 0.5, 0.5)
    model = VimModel(net, name="tiny", num_classes=5, input_size=12, mean=half, std=half)
    return model.eval().requires_grad_(False)


# -- the network -------------------------------------------------------------------------------------


def test_vim_s_has_144_sites_and_the_official_number_of_parameters() -> None:
    model = VimS().skeleton()
    sites = linear_sites(model)
    assert len(sites) == 144
    assert all(isinstance(model.net.get_submodule(site), nn.Linear) for site in sites)
    assert sum(p.numel() for p in model.net.parameters()) == 25_796_584
    assert (model.net.cls_index, model.net.pos_embed.shape[1]) == (98, 197)


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_scan_equals_the_naive_loop(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(0)
    length, groups, batch, dim, states = 9, 2, 3, 5, 4
    u, z = (torch.randn(length, groups, batch, dim, generator=rng) for _ in range(2))
    b, c = (torch.randn(length, groups, batch, states, generator=rng) for _ in range(2))
    delta, a = z.exp() * 0.1, -torch.rand(groups, dim, states, generator=rng)
    h, expected = torch.zeros(groups, batch, dim, states), []
    for t in range(length):
        decay = torch.exp(delta[t, ..., None] * a[:, None])
        h = decay * h + (delta[t] * u[t])[..., None] * b[t, :, :, None]
        expected.append((h * c[t, :, :, None]).sum(-1))
    monkeypatch.setattr(scanning, "CHUNK_NUMBERS", chunk * groups * batch * dim * states)
    found = selective_scan(u, delta, a, b, c)
    assert torch.allclose(found, torch.stack(expected), atol=1e-5)


def test_mixer_commutes_with_the_flip_when_directions_are_tied() -> None:
    torch.manual_seed(0)
    mixer = MambaMixer(16, d_state=4, d_conv=4, expand=2)
    state = mixer.state_dict()
    for name in list(state):
        twin = "A_log" if name == "A_b_log" else name.replace("_b.", ".").removesuffix("_b")
        state[name] = state[twin]
    mixer.load_state_dict(state)
    x = torch.randn(2, 10, 16)
    with torch.no_grad():
        assert torch.allclose(mixer(x.flip(1)), mixer(x).flip(1), atol=1e-5)


# -- scales ------------------------------------------------------------------------------------------


def test_smoothing_changes_nothing_but_rounding() -> None:
    rng = torch.Generator().manual_seed(0)
    x, weight = torch.randn(7, 4, 12, generator=rng), torch.randn(5, 12, generator=rng)
    x[..., 3] *= 50
    sigma = smoothing(x, weight)
    assert torch.allclose(linear(x / sigma, weight * sigma), linear(x, weight), atol=1e-4)
    channels = (x / sigma).abs().amax((0, 1))
    assert torch.allclose(channels, (weight * sigma).abs().amax(0), rtol=1e-4)


def test_weight_codes_are_symmetric(w8a8: Calibration) -> None:
    codes = torch.cat([w8a8[f"layers.0.mixer.{name}.codes"].flatten() for name in LAYERS])
    assert codes.dtype == torch.int8
    assert codes.min() >= -127
    rows = torch.randn(8, 100, generator=torch.Generator().manual_seed(0))
    assert (row_scales(rows, 3) <= rows.abs().amax(1) / 3).all()


def test_each_token_has_a_range_of_its_own() -> None:
    x = torch.randn(6, 20, 30, generator=torch.Generator().manual_seed(0))
    x = x * torch.arange(1.0, 7.0).view(-1, 1, 1)
    scale, zero = token_parameters(x, 8)
    assert (scale.diff() > 0).all()
    assert scale.shape == zero.shape == (6,)
    quantiser = TokenActivation(torch.ones(30), scale, zero, 8, cls_row=3)
    assert ((quantiser(x) - x).abs() <= scale.view(-1, 1, 1) / 2 + 1e-5).float().mean() > 0.98


def test_prompts_take_the_class_tokens_row_and_move_no_other() -> None:
    rows = torch.arange(10.0).view(-1, 1, 1)
    forward = extend_token_scales(rows, 3, cls_row=4).flatten().tolist()
    assert forward == [0, 1, 2, 3, 4, 4, 4, 4, 5, 6, 7, 8, 9]
    # Reading backwards, row l is token 9 − l: the class token, 4, is row 5.
    backward = extend_token_scales(9 - rows, 3, cls_row=5).flatten().tolist()
    assert backward == forward[::-1]


def test_fewer_tokens_than_calibrated_are_refused() -> None:
    quantiser = TokenActivation(torch.ones(2), torch.ones(5), torch.zeros(5), 8, cls_row=2)
    with pytest.raises(ValueError, match="calibrated for 5 tokens, and there are 4"):
        quantiser(torch.ones(4, 1, 2))


# -- the scheme --------------------------------------------------------------------------------------


def test_passes_with_and_without_prompts(quantised: Model, images: Tensor) -> None:
    prompt = quantised.new_prompt(3, torch.Generator().manual_seed(0))
    embedded = quantised.stem(images[:2], prompt)
    assert embedded.shape[1] == TOKENS + 3
    _, z = quantised.continue_from(quantised.enter(embedded))
    assert quantised.head(z).isfinite().all()
    assert quantised(images[:2]).isfinite().all()
    for name in LAYERS:
        layer = quantised.blocks[0].mixer.get_submodule(name)
        plain, longer = layer.input.rows(TOKENS)[0], layer.input.rows(TOKENS + 3)[0]
        kept = torch.cat([longer[: CLS + 1], longer[CLS + 4 :]])
        assert torch.equal(kept, plain)
        assert torch.equal(longer[CLS + 1 : CLS + 4], plain[[CLS] * 3])


def test_backward_layers_have_the_class_token_mirrored() -> None:
    model = tiny_model()
    x = torch.rand(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    quantised = Ptq4Vm().quantize(deepcopy(model), x)
    mixer = quantised.blocks[0].mixer
    assert (mixer.x_proj.input.cls_row, mixer.x_proj_b.input.cls_row) == (4, 5)
    prompt = quantised.new_prompt(2, torch.Generator().manual_seed(0))
    assert quantised.continue_from(quantised.stem(x, prompt))[1].isfinite().all()


def test_eight_bits_cost_less_than_a_point(pristine: Model) -> None:
    data = Cifar10Mini()
    quantised = Ptq4Vm().quantize(deepcopy(pristine), data.source_images()[:32])
    x, y = data.test_images(Domain("clean", 0), np.arange(400)), torch.tensor(data.test_labels()[:400])
    with torch.no_grad():
        wanted, got = (sum(hits(m, *b) for b in batches(x, y)) for m in (pristine, quantised))
    assert got > wanted - 4


def batches(x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(x.split(50), y.split(50), strict=True)


def hits(model: Model, x: Tensor, y: Tensor) -> int:
    return int((model(x).argmax(1) == y).sum())


def test_calibration_survives_safetensors(
    pristine: Model, quantised: Model, images: Tensor, w8a8: Calibration
) -> None:
    read = Ptq4Vm().install(deepcopy(pristine), load(save(w8a8)))
    assert torch.equal(quantised(images[:4]), read(images[:4]))
    layers = [m for m in read.net.modules() if isinstance(m, QuantLinear)]
    assert len(layers) == 36
    assert all(torch.equal(m.weight, m.recompute()) for m in layers)


def test_norms_stay_adaptable(pristine: Model, quantised: Model, images: Tensor) -> None:
    assert [n.name for n in quantised.norms()] == [n.name for n in pristine.norms()]
    before = quantised(images[:2])
    quantised.norms()[2].module.weight.mul_(1.2)
    assert not torch.equal(before, quantised(images[:2]))


def test_jlss_lowers_its_loss_and_all_six_layers_learn(pristine: Model, images: Tensor) -> None:
    quantizer, block = Ptq4Vm(bits="W4A4"), pristine.blocks[0]
    with torch.no_grad():
        hidden = pristine.enter(pristine.stem(images[:8]))
        fits = quantizer._fit_block(block, quantizer._observe(block, hidden)[0])
        tokens, target = block.norm(hidden), mixer_output(block, hidden)
    learned, losses = learn_scales(block.mixer, fits, Bits(4, 4), tokens, target, steps=6)
    assert min(losses) < 0.98 * losses[0]
    for name in LAYERS:
        assert not torch.equal(learned[name].sigma, fits[name].sigma), name
        assert not torch.equal(learned[name].w_scale, fits[name].w_scale), name
        assert torch.equal(learned[name].a_zero, fits[name].a_zero), name


def test_jlss_changes_the_calibration() -> None:
    model = tiny_model()
    x = torch.rand(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    plain, learned = (
        Ptq4Vm(bits="W4A4", jlss=jlss, jlss_steps=3).calibrate(deepcopy(model), x, lambda *_: None)
        for jlss in (False, True)
    )
    assert plain.keys() == learned.keys()
    assert any(not torch.equal(plain[key], learned[key]) for key in plain)
    assert not any(tensor.requires_grad for tensor in learned.values())


def test_refuses_with_a_reason() -> None:
    assert "is a resnet" in (Ptq4Vm().unsupported(ResNetMicro().skeleton()) or "")
    with pytest.raises(ValueError, match="'W16A8' does not fit: it must be a bit-width from W2A2 to W8A8"):
        Ptq4Vm(bits="W16A8")
