"""Integer engines: their numbers are those of the simulation, and whatever they cannot do has a reason."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tta_bench import testing
from tta_bench.api import Bits, Calibration, Domain, Model, ModelSource, Source
from tta_bench.api.agreement import agreement
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.models.micro import ResNetMicro, VimMicro, VitMicro
from tta_bench.plugins import registry
from tta_bench_quantizers._core.activations import UniformActivation
from tta_bench_quantizers._engines.integer_layers import IntegerLayer, input_grid
from tta_bench_quantizers._engines.unsigned_codes import _eager, unsigned_codes
from tta_bench_quantizers.adalog.quantizer import AdaLog
from tta_bench_quantizers.mqbench.quantizer import MqBench
from tta_bench_quantizers.ptq4vit.quantizer import Ptq4Vit
from tta_bench_quantizers.ptq4vm.quantizer import Ptq4Vm
from tta_bench_quantizers.uniform import UniformQuantizer

NETWORKS: dict[str, type[ModelSource]] = {"vit": VitMicro, "resnet": ResNetMicro, "vim": VimMicro}
ENGINES = ("torch-int8",)
METHODS = {"zoa": {}, "foa": {"k": 2}, "t3a": {}, "lame": {}, "shift": {}, "bn-adapt": {}}


@cache
def calibrated(network: str) -> Calibration:
    """The calibration that all engines of a network share."""
    images = Cifar10Mini().source_images()[:32]
    return UniformQuantizer().calibrate(NETWORKS[network]().build(), images, lambda *_: None)


@cache
def loaded(network: str, engine: str) -> Model:
    return UniformQuantizer(engine=engine).install(NETWORKS[network]().build(), calibrated(network))


def fresh(network: str, engine: str) -> Model:
    return deepcopy(loaded(network, engine))


@cache
def shown(corruption: str = "clean", severity: int = 0, count: int = 128) -> Tensor:
    data, domain = Cifar10Mini(), Domain(corruption, severity)
    data.prepare(domain, count)
    return data.test_images(domain, np.arange(count))


# -- codes and layers --------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", [0, 3, 128, 255])
def test_codes_are_those_of_the_simulation(zero: int) -> None:
    x = torch.randn(5, 7, 9, generator=torch.Generator().manual_seed(zero)) * 12
    x[0, 0, :4] = torch.tensor([torch.inf, -torch.inf, 0.05, 0.15])
    scale = torch.tensor(0.1)
    simulated = UniformActivation(scale, torch.tensor(zero), 8)(x)
    for codes in (unsigned_codes(x, float(scale), zero), _eager(x, float(scale), zero)):
        assert codes.dtype is torch.uint8
        assert torch.equal((codes.float() - zero) * scale, simulated)


def test_codes_keep_channels_last_and_treat_nan_as_zero() -> None:
    x = torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    assert unsigned_codes(x, 0.1, 0).is_contiguous(memory_format=torch.channels_last)
    undefined = torch.tensor([torch.nan, 1.0])
    for codes in (unsigned_codes(undefined, 0.1, 7), _eager(undefined, 0.1, 7)):
        assert codes.tolist() == [7, 17]


@pytest.mark.parametrize("network", NETWORKS)
def test_every_layer_gives_the_simulated_numbers(network: str) -> None:
    """Layer by layer on the inputs of the simulation: only the rounding of float sums differs."""
    simulation, engine = fresh(network, "simulated"), fresh(network, "torch-int8")
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    layers = {name: m for name, m in engine.net.named_modules() if isinstance(m, IntegerLayer)}
    for name in layers:
        simulation.net.get_submodule(name).register_forward_hook(
            lambda _, x, y, name=name: seen.update({name: (x[0].clone(), y.clone())})
        )
    with torch.no_grad():
        simulation(shown()[:8])
        assert seen.keys() == layers.keys()
        for name, (x, y) in seen.items():
            assert torch.allclose(layers[name](x), y, rtol=1e-4, atol=1e-5 * float(y.abs().max())), name


def test_all_but_the_layer_behind_a_pixel_prompt_run_in_integers() -> None:
    for network, source in NETWORKS.items():
        model = source().build()
        wanted = set(UniformQuantizer().site_bits(model)) - ({"conv1"} if network == "resnet" else set())
        assert (
            set(UniformQuantizer(engine="torch-int8").integer_sites(fresh(network, "torch-int8"))) == wanted
        )


def test_copies_share_packed_weights_and_states_hold_no_codes() -> None:
    model = loaded("vit", "torch-int8")
    one, other = (m.net.get_submodule("blocks.0.attn.qkv") for m in (model, deepcopy(model)))
    assert one.packed is other.packed
    assert not [name for name in model.state_dict() if "codes" in name]


def test_layers_of_other_grids_stay_simulated() -> None:
    layer = fresh("vit", "simulated").net.get_submodule("blocks.0.attn.qkv")
    assert input_grid(layer) is not None
    layer.input.bits = 4
    assert input_grid(layer) is None
    layer.input = nn.Identity()
    assert input_grid(layer) is None


# -- networks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", [("clean", 0), ("gaussian_noise", 5), ("fog", 5)])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("engine", ENGINES)
def test_engine_agrees_with_the_simulation(engine: str, network: str, domain: tuple[str, int]) -> None:
    found = agreement(loaded(network, engine), loaded(network, "simulated"), shown(*domain))
    assert found.share >= 0.98
    assert found.largest_difference < 0.5


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("engine", ENGINES)
def test_batch_statistics_and_prompts_reach_the_engine(engine: str, network: str) -> None:
    simulation, model = fresh(network, "simulated"), fresh(network, engine)
    prompt = model.new_prompt(3, torch.Generator().manual_seed(0))
    x = shown()[:32]
    for each in (simulation, model):
        each.use_batch_statistics()
    with torch.no_grad():
        z, wanted = (m.continue_from(m.enter(m.stem(x, prompt)))[1] for m in (model, simulation))
        plain = model.features(x)
    scale = wanted.abs().max()
    assert (z - wanted).abs().median() < 1e-2 * scale
    assert not torch.allclose(z, plain)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("network", ["vit", "resnet"])
@pytest.mark.parametrize("engine", ENGINES)
def test_methods_run_on_engines(engine: str, network: str, method: str) -> None:
    plugin = registry.load("methods", method)
    outputs = []
    for each in ("simulated", engine):
        model = fresh(network, each)
        run = plugin(**(plugin.presets(model.target()) | METHODS[method]))
        if (reason := run.unsupported(model)) is not None:
            pytest.skip(reason)
        if run.consumes == "features" and run.batch_statistics(model):
            model.use_batch_statistics()
        with torch.no_grad():
            run.setup(model, Source(Cifar10Mini().source_images()[:32], 32))
            given = (lambda x, m=model: m.features(x)) if run.consumes == "features" else (lambda x: x)
            outputs.append(torch.cat([run.step(given(x)) for x in shown("fog", 5).split(64)]))
    same = (outputs[0].argmax(1) == outputs[1].argmax(1)).float().mean()
    assert same >= 0.95


# -- what an engine cannot do ------------------------------------------------------------------------


def test_refusals_have_reasons() -> None:
    vit, resnet = VitMicro().skeleton(), ResNetMicro().skeleton()
    assert "W4A4" in (UniformQuantizer(bits="W4A4", engine="torch-int8").unsupported(vit) or "")
    assert "zero point" in (MqBench(engine="torch-int8").unsupported(resnet) or "")
    assert "two ranges" in (Ptq4Vit(engine="torch-int8").unsupported(vit) or "")
    assert "logarithmic" in (AdaLog(engine="torch-int8").unsupported(vit) or "")
    assert "each token" in (Ptq4Vm(engine="torch-int8").unsupported(VimMicro().skeleton()) or "")
    for scheme in (Ptq4Vit(), AdaLog()):
        assert scheme.unsupported(vit) is None
    assert UniformQuantizer(bits="W4A4").unsupported(vit) is None
    with pytest.raises(ValueError, match="engine"):
        UniformQuantizer(engine="abacus")  # type: ignore[arg-type]


def test_gradient_methods_are_refused_on_engines() -> None:
    tent = registry.load("methods", "tent")()
    assert "quantised" in (tent.unsupported(fresh("vit", "torch-int8")) or "")


def test_engines_have_names_and_bits() -> None:
    model = loaded("vit", "torch-int8")
    assert model.bits == Bits(8, 8)
    assert UniformQuantizer(engine="torch-int8").title() == "uniform torch-int8"
    assert UniformQuantizer().title() == ""


@pytest.mark.parametrize("engine", ENGINES)
def test_contract(engine: str) -> None:
    testing.check("quantizers", "uniform", engine=engine)
