"""Integer engines: their numbers are those of the simulation, and whatever they cannot do has a reason."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bench.agreement import compared
from bench.engines import available
from bench.networks import MICRO
from tta_bench import testing
from tta_bench.api import Bits, Calibration, Domain, Method, Model, ModelSource, Source
from tta_bench.api.agreement import agreement
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.errors import Unsupported
from tta_bench.footprint.account import account
from tta_bench.models.micro import ResNetMicro, VimMicro, VitMicro
from tta_bench.plugins import registry
from tta_bench_quantizers._core.activations import UniformActivation
from tta_bench_quantizers._core.sites import replace_module
from tta_bench_quantizers._engines.integer_layers import IntegerLayer, grid_of
from tta_bench_quantizers._engines.unsigned_codes import _eager, unsigned_codes
from tta_bench_quantizers.adalog.quantizer import AdaLog
from tta_bench_quantizers.mqbench.quantizer import MqBench
from tta_bench_quantizers.ptq4vit.quantizer import Ptq4Vit
from tta_bench_quantizers.ptq4vm.quantizer import Ptq4Vm
from tta_bench_quantizers.uniform import UniformQuantizer

NETWORKS: dict[str, type[ModelSource]] = {"vit": VitMicro, "resnet": ResNetMicro, "vim": VimMicro}
HAS_ONNX = all(find_spec(name) for name in ("onnx", "onnxruntime"))
with_onnx = pytest.mark.skipif(not HAS_ONNX, reason="the extra tta-bench[onnx] is not installed")
ENGINES = ("torch-int8", pytest.param("onnxruntime", marks=with_onnx))
METHODS = {"zoa": {}, "foa": {"k": 2}, "t3a": {}, "lame": {}, "shift": {}, "bn-adapt": {}}


def model_of(network: str) -> Model:
    return NETWORKS[network]().build()


@cache
def calibrated(network: str) -> Calibration:
    """The calibration that all engines of a network share."""
    images = Cifar10Mini().source_images()[:32]
    return UniformQuantizer().calibrate(model_of(network), images, lambda *_: None)


@cache
def loaded(network: str, engine: str) -> Model:
    return UniformQuantizer(engine=engine).install(model_of(network), calibrated(network))


def supported(network: str, engine: str) -> str:
    """The engine, unless it has no graph of this network."""
    if (network, engine) == ("vim", "onnxruntime"):
        pytest.skip("no graph of a scan")
    return engine


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
    for codes, has_nan in (unsigned_codes(x, float(scale), zero), _eager(x, float(scale), zero)):
        assert not has_nan
        assert codes.dtype is torch.uint8
        assert torch.equal((codes.float() - zero) * scale, simulated)


def test_codes_keep_channels_last_and_treat_nan_as_zero() -> None:
    x = torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    assert unsigned_codes(x, 0.1, 0)[0].is_contiguous(memory_format=torch.channels_last)
    undefined = torch.tensor([torch.nan, 1.0])
    for codes, has_nan in (unsigned_codes(undefined, 0.1, 7), _eager(undefined, 0.1, 7)):
        assert has_nan
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


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("engine", ENGINES)
def test_all_but_the_layer_behind_a_pixel_prompt_run_in_integers(engine: str, network: str) -> None:
    """A site that an engine leaves in float would agree with the simulation even better."""
    scheme = UniformQuantizer(engine=supported(network, engine))
    wanted = set(scheme.site_bits(model_of(network))) - ({"conv1"} if network == "resnet" else set())
    assert set(scheme.expected_integer_sites(model_of(network))) == wanted
    found = scheme.integer_sites(fresh(network, engine))
    assert set(found) == wanted
    assert len(found) == len(wanted)


def test_copies_share_packed_weights_and_states_hold_no_codes() -> None:
    model = loaded("vit", "torch-int8")
    one, other = (m.net.get_submodule("blocks.0.attn.qkv") for m in (model, deepcopy(model)))
    assert one.packed is other.packed
    assert not [name for name in model.state_dict() if "codes" in name]


def test_layers_of_other_grids_stay_simulated() -> None:
    layer = fresh("vit", "simulated").net.get_submodule("blocks.0.attn.qkv")
    assert grid_of(layer.input) is not None
    layer.input.bits = 4
    assert grid_of(layer.input) is None
    assert grid_of(nn.Identity()) is None


# -- networks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", [("clean", 0), ("gaussian_noise", 5), ("fog", 5), ("pixelate", 5)])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("engine", ENGINES)
def test_engine_agrees_with_the_simulation(engine: str, network: str, domain: tuple[str, int]) -> None:
    engine = supported(network, engine)
    found = agreement(loaded(network, engine), loaded(network, "simulated"), shown(*domain))
    assert found.share >= 0.98
    assert found.largest_difference < 0.5


@pytest.mark.parametrize("name", MICRO)
def test_the_measured_agreement_has_bounds(name: str) -> None:
    """What `python -m bench --only agreement` measures on 2 000 images, on fewer."""
    found = list(compared(name, 200))
    sections = {measure.section.rpartition(" ")[2] for measure in found}
    assert sections == set(available()) - {"simulated"} - ({"onnxruntime"} if name == "vim-micro" else set())
    shares = [measure for measure in found if measure.unit == "%"]
    assert all(measure.held for measure in shares)
    gaps = [measure.value for measure in found if measure.unit == ""]
    assert len(gaps) == len(shares) == 4 * len(sections)
    assert all(0 < gap < 0.5 for gap in gaps)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("engine", ENGINES)
def test_batch_statistics_and_prompts_reach_the_engine(engine: str, network: str) -> None:
    simulation, model = fresh(network, "simulated"), fresh(network, supported(network, engine))
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
    assert "W6A6" in (MqBench(bits="W6A6", engine="torch-int8").unsupported(resnet) or "")
    assert "two ranges" in (Ptq4Vit(engine="torch-int8").unsupported(vit) or "")
    assert "logarithmic" in (AdaLog(engine="torch-int8").unsupported(vit) or "")
    assert "each token" in (Ptq4Vm(engine="torch-int8").unsupported(VimMicro().skeleton()) or "")
    for scheme in (Ptq4Vit(), AdaLog()):
        assert scheme.unsupported(vit) is None
    assert UniformQuantizer(bits="W4A4").unsupported(vit) is None
    with pytest.raises(ValueError, match="engine"):
        UniformQuantizer(engine="abacus")  # type: ignore[arg-type]


CHANGES_NORMS = [("bn-adapt", {"variant": name}) for name in ("alpha", "prior", "cumulative", "ema")]
CHANGES_NORMS += [("iabn", {}), ("tbr", {})]


@with_onnx
@pytest.mark.parametrize(("name", "params"), CHANGES_NORMS)
def test_methods_that_replace_norms_are_refused_where_graphs_compute_them(
    name: str, params: dict[str, str]
) -> None:
    method = registry.load("methods", name)(**params)
    reason = (
        "replaces norm layers, and the engine of resnet-micro W8A8 computes them itself; "
        "engine torch-int8 does not"
    )
    assert method.unsupported(fresh("resnet", "onnxruntime")) == reason
    with pytest.raises(Unsupported, match=reason):  # `plan` asks so
        account(ResNetMicro(), UniformQuantizer(engine="onnxruntime"), method, 8)
    for engine in ("torch-int8", "simulated"):
        model = fresh("resnet", engine)
        assert method.unsupported(model) is None
        method.setup(model, Source(Cifar10Mini().source_images()[:32], 32))
        assert predicts(method)


def predicts(method: Method) -> bool:
    with torch.no_grad():
        return bool(method.step(shown()[:8]).isfinite().all())


@with_onnx
@pytest.mark.parametrize("network", ["vit", "resnet"])
@pytest.mark.parametrize("name", registry.names("methods"))
def test_every_method_runs_on_onnxruntime_or_is_refused_before_it_runs(name: str, network: str) -> None:
    plugin, model = registry.load("methods", name), fresh(network, "onnxruntime")
    method = plugin(**plugin.presets(model.target()) | ({"population": 3} if name == "pace" else {}))
    if method.unsupported(model) is not None:
        return
    if method.consumes == "features":
        return  # an ordinary pass, which other tests compare
    method.setup(model, Source(Cifar10Mini().source_images()[:32], 32))
    assert predicts(method)


def test_networks_without_a_graph_are_refused() -> None:
    scheme = UniformQuantizer(engine="onnxruntime")
    if not HAS_ONNX:
        assert "pip install tta-bench[onnx]" in (scheme.unsupported(model_of("vit")) or "")
        return
    assert "no graph of the blocks of vim-micro" in (scheme.unsupported(model_of("vim")) or "")
    for network in ("vit", "resnet"):
        model = model_of(network)
        assert scheme.unsupported(model) is None
        attribute = "attn" if network == "vit" else "aa"
        setattr(model.blocks[2], attribute, nn.AvgPool2d(2))
        assert "has no graph of block" in (scheme.unsupported(model) or "")


def test_without_the_extra_the_reason_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tta_bench_quantizers._engines.install.find_spec", lambda name: None)
    reason = UniformQuantizer(engine="onnxruntime").unsupported(model_of("vit"))
    assert reason == ("engine onnxruntime needs onnx and onnxruntime; run `pip install tta-bench[onnx]`")


@with_onnx
@pytest.mark.parametrize("network", ["vit", "resnet"])
def test_a_norm_that_the_session_cannot_see_is_an_error(network: str) -> None:
    for change in ("replace", "hook"):
        model = fresh(network, "onnxruntime")
        name = next(norm.name for norm in model.norms() if norm.block == 1)
        if change == "replace":
            replace_module(model.net, name, nn.Identity())
        else:
            model.net.get_submodule(name).register_forward_hook(lambda *_: None)
        with pytest.raises(RuntimeError, match=r"was replaced or has a hook.*torch-int8 or simulated"):
            model(shown()[:2])


@with_onnx
def test_one_block_cannot_mix_statistics_of_the_batch_and_stored_ones() -> None:
    """Its graph has one switch: the last norm would decide for all."""
    model = fresh("resnet", "onnxruntime")
    for norm in model.norms():
        if norm.name.endswith("bn1"):
            norm.module.running_mean = norm.module.running_var = None
    with pytest.raises(RuntimeError, match=r"some BatchNorm layers of a block.*torch-int8 or simulated"):
        model(shown()[:2])


@pytest.mark.parametrize("engine", ENGINES)
def test_stored_statistics_are_updated_as_in_the_simulation_or_not_at_all(engine: str) -> None:
    model, simulation = fresh("resnet", engine), fresh("resnet", "simulated")
    for each in (model, simulation):
        for norm in each.norms():
            norm.module.train()
    if engine == "onnxruntime":
        with pytest.raises(RuntimeError, match=r"would update its stored statistics.*torch-int8"):
            model(shown()[:8])
        return
    for each in (model, simulation):
        each(shown()[:8])
    for mine, theirs in zip(model.norms(), simulation.norms(), strict=True):
        assert torch.allclose(mine.module.running_mean, theirs.module.running_mean, atol=1e-2), mine.name


@with_onnx
def test_batch_statistics_without_an_update_are_computed() -> None:
    model, simulation = fresh("resnet", "onnxruntime"), fresh("resnet", "simulated")
    for each in (model, simulation):
        for norm in each.norms():
            norm.module.train().track_running_stats = False
    assert agreement(model, simulation, shown()[:64]).share >= 0.98


@pytest.mark.parametrize("network", ["vit", "resnet"])
@pytest.mark.parametrize("engine", ENGINES)
def test_diverged_parameters_give_logits_that_are_not_finite(engine: str, network: str) -> None:
    """Codes have no NaN; without more, a method that diverged would be scored as if it had not."""
    for position in (1, -1):
        model = fresh(network, engine)
        model.norms()[position].module.weight[0] = torch.nan
        assert not model(shown()[:4]).isfinite().any()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("engine", ENGINES)
def test_one_undefined_image_has_undefined_logits_and_no_other_has(engine: str, network: str) -> None:
    x = shown()[:4].clone()
    x[1, 0, 3, 3] = torch.nan
    rows = fresh(network, supported(network, engine))(x).isfinite().all(1)
    assert rows.tolist() == [True, False, True, True]
    assert torch.equal(rows, fresh(network, "simulated")(x).isfinite().all(1))


@with_onnx
def test_layers_inside_a_block_are_missed_with_a_remedy() -> None:
    block = fresh("vit", "onnxruntime").blocks[0]
    assert not hasattr(block, "attn")
    with pytest.raises(AttributeError, match=r"one graph on engine onnxruntime and has no attn.*torch-int8"):
        block.attn.register_forward_hook(lambda *_: None)


@with_onnx
@pytest.mark.parametrize("network", ["vit", "resnet"])
def test_norms_without_parameters_have_no_graph(network: str) -> None:
    model, scheme = model_of(network), UniformQuantizer(engine="onnxruntime")
    if network == "vit":
        model.blocks[2].norm1 = nn.LayerNorm(64, elementwise_affine=False)
    else:
        model.blocks[2].bn2 = nn.BatchNorm2d(16, affine=False)
    assert "has no graph of block" in (scheme.unsupported(model) or "")


@with_onnx
@pytest.mark.parametrize("network", ["vit", "resnet"])
def test_sessions_read_norm_parameters_at_every_call(network: str) -> None:
    simulation, model = fresh(network, "simulated"), fresh(network, "onnxruntime")
    x = shown()[:16]
    with torch.no_grad():
        before = model(x)
        for each in (simulation, model):
            for norm in each.norms():
                norm.module.weight.mul_(1.02)
                norm.module.bias.add_(0.01)
        after, wanted = model(x), simulation(x)
    assert not torch.allclose(before, after, atol=1e-2)
    assert (after - wanted).abs().median() < 1e-3


@with_onnx
def test_prompts_take_their_range_from_the_patch_weights() -> None:
    draws = [
        fresh("vit", e).new_prompt(3, torch.Generator().manual_seed(0)) for e in ("simulated", "onnxruntime")
    ]
    assert torch.equal(*draws)


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
