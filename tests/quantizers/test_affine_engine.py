"""Engines on weights with zero points: `mqbench` in integers gives the simulated numbers."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from tests.quantizers.test_engines import ENGINES, model_of, shown
from tta_bench import testing
from tta_bench.api import Model
from tta_bench.api.agreement import agreement
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench_quantizers._core.layers import quantized_layer
from tta_bench_quantizers._engines.affine_layers import AffineIntegerConv2d
from tta_bench_quantizers._engines.integer_layers import InputGrid, IntegerLayer
from tta_bench_quantizers.mqbench.quantizer import MqBench


@cache
def mqbench(engine: str) -> Model:
    images = Cifar10Mini().source_images()[:32]
    return MqBench(engine=engine).quantize(model_of("resnet"), images)


@pytest.mark.parametrize("engine", ENGINES)
def test_all_layers_but_the_first_are_in_integers(engine: str) -> None:
    scheme, wanted = MqBench(engine=engine), set(MqBench().weight_bits(model_of("resnet"))) - {"conv1"}
    assert set(scheme.integer_sites(mqbench(engine))) == wanted
    assert set(scheme.expected_integer_sites(model_of("resnet"))) == wanted


def test_weights_are_those_of_the_simulation() -> None:
    simulation, engine = mqbench("simulated"), mqbench("torch-int8")
    for name in MqBench(engine="torch-int8").integer_sites(engine):
        mine, theirs = (model.net.get_submodule(name).weight for model in (engine, simulation))
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-6 * float(theirs.abs().max())), name


def test_every_affine_layer_gives_the_simulated_numbers() -> None:
    simulation, engine = deepcopy(mqbench("simulated")), mqbench("torch-int8")
    layers = {name: m for name, m in engine.net.named_modules() if isinstance(m, IntegerLayer)}
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    for name in layers:
        simulation.net.get_submodule(name).register_forward_hook(
            lambda _, x, y, name=name: seen.update({name: (x[0].clone(), y.clone())})
        )
    with torch.no_grad():
        simulation(shown()[:8])
        assert seen.keys() == layers.keys()
        for name, (x, y) in seen.items():
            assert torch.allclose(layers[name](x), y, rtol=1e-4, atol=1e-5 * float(y.abs().max())), name


@pytest.mark.parametrize("zeros", [(0, 255), (128, 128), (3, 200)])
def test_affine_layers_without_bias_and_with_padding(zeros: tuple[int, int]) -> None:
    rng = torch.Generator().manual_seed(sum(zeros))
    codes = torch.randint(0, 256, (2, 5, 3, 3), generator=rng, dtype=torch.uint8)
    scale, zero = torch.tensor([0.01, 0.3]), torch.tensor(zeros)
    grid = InputGrid(0.1, 7)
    x = (torch.randint(0, 256, (2, 5, 6, 6), generator=rng) - grid.zero) * torch.tensor(grid.scale)
    convolution = nn.Conv2d(5, 2, 3, stride=2, padding=1, bias=False)
    simulated = quantized_layer(convolution, codes, scale, zero, bits=8)
    for bias in (None, torch.tensor([1.0, -2.0])):
        simulated.bias = bias
        found, wanted = AffineIntegerConv2d(simulated, grid)(x), simulated(x)
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize("domain", [("clean", 0), ("gaussian_noise", 5), ("fog", 5), ("pixelate", 5)])
@pytest.mark.parametrize("engine", ENGINES)
def test_mqbench_in_integers_agrees_with_the_simulation(engine: str, domain: tuple[str, int]) -> None:
    found = agreement(mqbench(engine), mqbench("simulated"), shown(*domain))
    assert found.share >= 0.98
    assert found.largest_difference < 0.5


@pytest.mark.parametrize("engine", ENGINES)
def test_hidden_states_between_blocks_are_those_of_the_simulation(engine: str) -> None:
    """Every block output but the last is on the grid that its readers share, shortcuts too."""
    seen: list[list[Tensor]] = []
    for model in (mqbench(engine), mqbench("simulated")):
        with torch.no_grad():
            hidden, states = model.enter(model.stem(shown()[:16])), list[Tensor]()
            for block in model.blocks:
                hidden = block(hidden.clone())
                states.append(hidden.clone())
        seen.append(states)
    for mine, theirs in zip(*seen, strict=True):
        assert (mine - theirs).abs().mean() < 1e-2 * theirs.abs().mean()


@pytest.mark.parametrize("engine", ENGINES)
def test_batch_statistics_agree(engine: str) -> None:
    model, simulation = deepcopy(mqbench(engine)), deepcopy(mqbench("simulated"))
    for each in (model, simulation):
        each.use_batch_statistics()
    assert agreement(model, simulation, shown("fog", 5)).share >= 0.98


def test_grouped_convolutions_are_refused() -> None:
    """Their groups have different input sums; the layers would stay in float without notice."""
    model = model_of("resnet")
    model.blocks[1].conv2 = nn.Conv2d(16, 16, 3, padding=1, groups=4, bias=False)
    assert "grouped convolutions" in (MqBench(engine="torch-int8").unsupported(model) or "")
    assert MqBench().unsupported(model) is None


def test_reconstruction_is_that_of_the_simulation() -> None:
    """The field `engine` does not change a calibration, which learns the rounding with gradients."""
    images, none = Cifar10Mini().source_images()[:8], lambda *_: None
    settings = {"reconstruction": "adaround", "recon_steps": 1, "recon_images": 8}
    one, other = (
        MqBench(engine=engine, **settings).calibrate(model_of("resnet"), images, none)
        for engine in ("simulated", "torch-int8")
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("engine", ENGINES)
def test_contract_of_mqbench_in_integers(engine: str) -> None:
    testing.check("quantizers", "mqbench", engine=engine)
