"""The contract suite: what every plugin must keep, for built-ins and third parties alike.

    from tta_bench.testing import check
    check("methods", "my-method")        # raises ContractBroken with all findings

`tta-bench check my-method` prints the same, check by check.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tta_bench import registry, tree
from tta_bench.api import (
    Bits,
    BlockwiseQuantizer,
    Calibration,
    Domain,
    Method,
    Model,
    Quantizer,
    Source,
    Target,
)
from tta_bench.corruption_checks import CORRUPTION_CHECKS
from tta_bench.families import FAMILIES
from tta_bench.isolation import settings_kept
from tta_bench.parameters import check_params
from tta_bench.pretend import fake_tensors
from tta_bench.space import ends
from tta_bench.standin import fake_

PRESET_FAMILIES = (*FAMILIES, "another")
QUICK_QUANTIZERS = ("uniform", "mqbench")  # those that every network is tried with; both quantise its input
CONTAINERS = (nn.ModuleList, nn.ModuleDict)  # which nobody calls
MICRO_MODELS = ("vit-micro", "resnet-micro", "vim-micro")
BATCH = 4
STEPS = 3


class ContractBroken(AssertionError):
    """A plugin does not keep its contract; the text lists every finding."""


@dataclass(frozen=True)
class Outcome:
    """One check: what was looked at, and what was wrong (or why it does not apply)."""

    check: str
    subject: str
    problem: str | None = None
    skipped: str | None = None


def check(group: str, name: str, **params: Any) -> list[Outcome]:
    """Run the suite, with parameters if wanted; raise ContractBroken if anything is wrong."""
    outcomes = list(outcomes_of(group, name, **params))
    broken = [o for o in outcomes if o.problem]
    if broken:
        lines = [f"{o.check} ({o.subject}): {o.problem}" for o in broken]
        raise ContractBroken(f'{group} "{name}":\n' + "\n".join(lines))
    return outcomes


def outcomes_of(group: str, name: str, **params: Any) -> Iterator[Outcome]:
    """Every check of the suite on one plugin."""
    plugin = registry.load(group, name)
    if group == "corruptions":
        yield from _each(CORRUPTION_CHECKS, name, lambda c: c(plugin, name))
        return
    yield from _each(PLUGIN_CHECKS, name, lambda c: c(plugin))
    if group == "methods":
        yield from _each([cost_is_declared, presets_fit, search_space_is_sound], name, lambda c: c(plugin))
    if group == "models":
        yield from _each(MODEL_CHECKS, name, lambda c: c(plugin(**params)))
    elif group == "data":
        yield from _on_disk(plugin(**params), name)
    else:
        yield from _on_models(group, plugin, params)


def _on_models(group: str, plugin: type, params: dict[str, Any]) -> Iterator[Outcome]:
    """A method or a quantizer on every network that it supports."""
    checks = METHOD_CHECKS if group == "methods" else QUANTIZER_CHECKS
    for name in MICRO_MODELS:
        model = registry.load("models", name)().build()
        reason = _make(group, plugin, model, params).unsupported(model)
        if reason is not None:
            yield Outcome("unsupported", name, skipped=reason)
            continue
        yield from _on_bench(checks, Bench(partial(_make, group, plugin, model, params), model))
        checks = [check for check in checks if check is not stays_on_its_device]  # slow, and said once


def _on_bench(checks: list[Callable[..., None]], bench: Bench) -> Iterator[Outcome]:
    yield from _each(checks, bench.pristine.name, lambda check: check(bench))


def _on_disk(data: Any, name: str) -> Iterator[Outcome]:
    """Data that is not on this machine cannot be looked at; that is no fault of its plugin."""
    missing = data.problems([])
    if missing:
        yield Outcome("data", name, skipped=missing[0])
        return
    yield from _each(DATA_CHECKS, name, lambda c: c(data))


def _make(group: str, plugin: Any, model: Model, params: dict[str, Any]) -> Any:
    presets = plugin.presets(model.target()) if group == "methods" else {}
    return plugin(**(presets | params))


def _each(checks: list[Callable[..., None]], subject: str, call: Callable[[Any], None]) -> Iterator[Outcome]:
    for item in checks:
        title = (item.__doc__ or item.__name__).strip().rstrip(".")
        try:
            with settings_kept(subject):  # what a plugin leaves changed would reach every other plugin
                call(item)
            yield Outcome(title, subject)
        except Exception as error:  # a check may break in any way the plugin can
            yield Outcome(title, subject, problem=f"{type(error).__name__}: {error}")


class Bench:
    """A plugin's factory, a model to copy, and images for one short stream."""

    def __init__(self, make: Callable[[], Any], model: Model) -> None:
        self.make, self.pristine = make, model
        self._backbones: dict[bool, Model] = {}  # by whether they normalise by the batch at hand
        rng = torch.Generator().manual_seed(0)
        shape = (3, model.input_size, model.input_size)
        size = max(BATCH, getattr(make(), "min_batch_size", 1))
        base = torch.rand(STEPS * size, *shape, generator=rng)
        self.images = [(x * 0.5 + 0.1 * i) for i, x in enumerate(base.split(size))]
        self.clean = torch.rand(2 * BATCH, *shape, generator=rng)

    def ready(self, model: Model | None = None) -> Method:
        """A method set up on a model of its own."""
        method: Method = self.make()
        model = model or copy.deepcopy(self.pristine)
        if method.consumes == "features" and method.batch_statistics(model):
            model.use_batch_statistics()
        torch.manual_seed(0)
        with torch.no_grad():
            method.setup(model, Source(self.clean, BATCH, model.device))
        return method

    def backbone(self, method: Method) -> Model:
        """The network that makes a method's features: never the method's own."""
        by_batch = method.batch_statistics(self.pristine)
        if by_batch not in self._backbones:
            self._backbones[by_batch] = copy.deepcopy(self.pristine)
            if by_batch:
                self._backbones[by_batch].use_batch_statistics()
        return self._backbones[by_batch]

    def given(self, method: Method, x: Tensor) -> Tensor:
        """What a step receives for images, as the harness makes it."""
        if method.consumes == "images":
            return x.clone()
        # Under fake tensors, only the method's own model is on the pretended device.
        backbone = self.backbone(method) if type(x) is Tensor else method.model
        return backbone.features(x)

    def step(self, method: Method, x: Tensor) -> Tensor:
        """One step, from images, as the harness does it."""
        torch.manual_seed(1)
        with torch.no_grad():
            return method.step(self.given(method, x))

    def stream(self, method: Method) -> list[Tensor]:
        """Outputs over the whole short stream."""
        return [self.step(method, x) for x in self.images]


def _same(a: list[Tensor], b: list[Tensor], what: str) -> None:
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        gap = (x - y).abs().max().item()
        assert torch.equal(x, y), f"{what}: batch {i} differs by up to {gap:.2g}"


# -- every plugin ----------------------------------------------------------------------------------


def parameters_are_plain(plugin: type) -> None:
    """parameters are plain data with defaults."""
    json.dumps(asdict(plugin()))


def version_is_text(plugin: Any) -> None:
    """declares a version."""
    assert isinstance(plugin.version, str), "`version` must be a text"
    assert plugin.version, "`version` is empty"


def cost_is_declared(plugin: Any) -> None:
    """declares forwards/backwards a batch."""
    plugin().passes_of_step()


def presets_fit(plugin: Any) -> None:
    """its presets are parameters within their ranges."""
    for family, bits in product(PRESET_FAMILIES, ("FP32", "W8A8", "W4A4", "W2A4")):
        _, problems = check_params(plugin, plugin.presets(Target("a model", family, bits)), "presets")
        assert not problems, f"{family} {bits}: " + "; ".join(map(str, problems))


def search_space_is_sound(plugin: Any) -> None:
    """What is declared to be searched are parameters, and every sample of them is accepted."""
    rng, declared = np.random.default_rng(0), plugin.search_space
    samples = [{name: space.sample(rng) for name, space in declared.items()} for _ in range(20)]
    samples += [{name: end} for name, space in declared.items() for end in ends(space)]
    for sample in samples:
        _, problems = check_params(plugin, sample, "search")
        assert not problems, "; ".join(map(str, problems))


# -- methods ---------------------------------------------------------------------------------------


def predicts_every_sample(bench: Bench) -> None:
    """predicts every sample, also in a last batch of one."""
    method = bench.ready()
    for x in (bench.images[0], bench.images[1][:1]):
        output = bench.step(method, x)
        wanted = (len(x), bench.pristine.num_classes)
        assert output.shape == wanted, f"output is {tuple(output.shape)}, wanted {wanted}"
        assert output.isfinite().all(), "output is not finite"


def leaves_input_alone(bench: Bench) -> None:
    """does not write into its input."""
    method = bench.ready()
    with torch.no_grad():
        given = bench.given(method, bench.images[0])
        before = given.clone()
        method.step(given)
    assert torch.equal(given, before), "the batch was changed in place"


def leaves_its_features_alone(bench: Bench) -> None:
    """does not change the network that makes its features."""
    method = bench.ready()
    if method.consumes == "images":
        return
    bench.stream(method)
    x = bench.images[0]
    with torch.no_grad():
        same = torch.equal(method.model.features(x), bench.backbone(method).features(x))
    assert same, 'its features come from an unchanged network; a method that changes it consumes "images"'


def returns_no_graph(bench: Bench) -> None:
    """builds no autograd graph unless it declares backprop."""
    method = bench.ready()
    outputs = bench.stream(method)
    assert not any(o.requires_grad for o in outputs), "outputs carry a graph: detach them"
    if not method.backprop:
        counted = method.model.passes.backward_images
        assert counted == 0, f"{counted} images went backward, and `backprop` is False"


def outputs_as_declared(bench: Bench) -> None:
    """outputs what it declares: logits or probabilities."""
    method = bench.ready()
    if method.outputs == "probabilities":
        sums = bench.step(method, bench.images[0]).sum(1)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-4), "rows do not sum to one"


def reset_forgets(bench: Bench) -> None:
    """after reset, replays the stream bit for bit."""
    method = bench.ready()
    first = bench.stream(method)
    method.reset()
    _same(first, bench.stream(method), "after reset()")


def state_continues(bench: Bench) -> None:
    """a saved state continues in a new instance bit for bit."""
    uncut = bench.ready()
    whole, counted = bench.stream(uncut), uncut.counters()
    first = bench.ready()
    bench.step(first, bench.images[0])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    bench.stream(first)  # a state that shares memory with the method would move now
    second = bench.ready()
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    _same(whole[1:], [bench.step(second, x) for x in bench.images[1:]], "after load_state_dict()")
    assert second.counters() == counted, "counters() differs after load_state_dict(): save what it counts"


def same_seed_same_numbers(bench: Bench) -> None:
    """two instances give the same numbers and share nothing."""
    one, two = bench.ready(), bench.ready()
    outputs = [(bench.step(one, x), bench.step(two, x)) for x in bench.images]
    _same([a for a, _ in outputs], [b for _, b in outputs], "two instances")


def memory_as_declared(bench: Bench) -> None:
    """depends on earlier batches only if it declares stream memory."""
    method = bench.ready()
    if method.memory == "stream":
        return
    late = bench.stream(method)[-1]
    early = bench.step(bench.ready(), bench.images[-1])
    _same([late], [early], "the last batch, alone")


def survives_a_broken_batch(bench: Bench) -> None:
    """predicts on after a batch that is not finite."""
    method = bench.ready()
    broken = bench.images[1].clone()
    broken[0] = torch.nan
    for x in (bench.images[0], broken):
        bench.step(method, x)
    assert bench.step(method, bench.images[2]).isfinite().all(), "the batch after it is not finite either"
    unexplained = method.skipped_updates - sum(method.skipped_reasons.values())
    assert not unexplained, "an update was skipped without a reason: call self.skip(reason)"


def adapts_to_its_smallest_batch(bench: Bench) -> None:
    """adapts to batches of `min_batch_size`, and predicts a smaller last one without learning from it."""
    method = bench.ready()
    least = method.min_batch_size
    assert method.refuses_batch(least) is None, "refuses batches of `min_batch_size`"
    outputs = [bench.step(method, x[:least]) for x in bench.images]
    assert all(output.isfinite().all() for output in outputs), "output is not finite"
    assert not method.skipped_updates, f"skips updates: {dict(method.skipped_reasons)}"
    if least > 1:
        assert method.refuses_batch(least - 1), "takes a stream of smaller batches than `min_batch_size`"
        assert bench.step(method, bench.images[0][: least - 1]).isfinite().all(), "output is not finite"
        assert method.skipped_updates == 1, "does not count a smaller last batch as skipped: call self.skip"


def leaves_numpy_rng_alone(bench: Bench) -> None:
    """leaves NumPy's global generator alone."""
    before = np.random.get_state()[1].copy()  # type: ignore[index, union-attr]
    bench.stream(bench.ready())
    after = np.random.get_state()[1]  # type: ignore[index]
    assert np.array_equal(before, after), "NumPy's global state has moved: use a generator of your own"


def stays_on_its_device(bench: Bench) -> None:
    """computes where its model does, also after a restart: shown by fake tensors on a GPU."""
    models = [copy.deepcopy(bench.pristine) for _ in range(2)]
    with fake_tensors():
        for model in models:
            fake_(model, "cuda")
        first, second = map(bench.ready, models)
        x = bench.images[0][:2].to("cuda")
        outputs = [bench.step(first, x)]
        saved = tree.placed(first.state_dict(), torch.device("cpu"))
        second.load_state_dict(tree.placed(saved, x.device))
        outputs.append(bench.step(second, x))
    assert all(o.device == x.device for o in outputs), "outputs are elsewhere than the batch"


# -- quantizers ------------------------------------------------------------------------------------


def _quantised(bench: Bench) -> tuple[Quantizer, Model, dict[str, Tensor]]:
    quantizer: Quantizer = bench.make()
    model = copy.deepcopy(bench.pristine)
    images = quantizer.calibration_set(bench.clean)
    calibration = quantizer.calibrate(copy.deepcopy(model), images, lambda *_: None)
    return quantizer, quantizer.install(model, calibration), calibration


def quantised_runs(bench: Bench) -> None:
    """the quantised model runs, and says what it is."""
    quantizer, model, _ = _quantised(bench)
    assert model(bench.images[0]).isfinite().all(), "logits are not finite"
    assert str(model.bits) == str(Bits.parse(quantizer.bits)), f"model says {model.bits}"
    assert model.differentiable == quantizer.differentiable, "`differentiable` is not on the model"


def quantizers_are_reached(bench: Bench) -> None:
    """every module that it places is reached in a forward pass."""
    _all_reached(bench.pristine, _quantised(bench)[1], bench.images[0])


def _all_reached(floating: Model, quantised: Model, x: Tensor) -> None:
    """What a quantizer has placed is of another type than what was there; no pass may leave it out."""
    before = {name: type(module) for name, module in floating.named_modules()}
    placed = {
        name: module
        for name, module in quantised.named_modules()
        if before.get(name) is not type(module) and not isinstance(module, CONTAINERS)
    }
    calls = dict.fromkeys(placed, 0)

    def count(name: str) -> Callable[..., None]:
        def add(*_: Any) -> None:
            calls[name] += 1

        return add

    handles = [module.register_forward_hook(count(name)) for name, module in placed.items()]
    with torch.no_grad():
        quantised(x)
    for handle in handles:
        handle.remove()
    idle = [name for name, number in calls.items() if not number]
    assert not idle, f"placed, and not reached in a forward pass: {', '.join(idle[:4])} ({len(idle)} in all)"


def calibration_round_trip(bench: Bench) -> None:
    """a calibration through safetensors gives the same bits."""
    from safetensors.torch import load, save

    quantizer, model, calibration = _quantised(bench)
    if calibration:
        calibration = load(save({k: v.contiguous() for k, v in calibration.items()}))
    again = quantizer.install(copy.deepcopy(bench.pristine), calibration)
    _same([model(bench.images[0])], [again(bench.images[0])], "reloaded")


def calibration_is_deterministic(bench: Bench) -> None:
    """calibrating twice gives the same tensors."""
    first, second = _quantised(bench)[2], _quantised(bench)[2]
    assert first.keys() == second.keys(), "other sites the second time"
    for site in first:
        assert torch.equal(first[site], second[site]), f"{site} differs"


def calibration_goes_on(bench: Bench) -> None:
    """a calibration that is stopped goes on after its last finished block, with the same tensors."""
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
    continued = calibrate()
    assert whole.keys() == continued.keys(), "other sites the second time"
    for site in whole:
        assert torch.equal(whole[site], continued[site]), f"{site} differs"


def norms_stay_adaptable(bench: Bench) -> None:
    """normalisation layers keep their names and parameters."""
    _, model, _ = _quantised(bench)
    before = [n.name for n in bench.pristine.norms()]
    assert [n.name for n in model.norms()] == before, "norm layers were folded or renamed"


def prompts_fit(bench: Bench) -> None:
    """a pass with a prompt works."""
    _, model, _ = _quantised(bench)
    prompt = model.new_prompt(3, torch.Generator().manual_seed(0))
    _, z = model.continue_from(model.enter(model.stem(bench.images[0], prompt)))
    assert model.head(z).isfinite().all(), "logits are not finite"


def moves_to_a_device(bench: Bench) -> None:
    """the quantised model moves to a GPU as a whole: shown by fake tensors."""
    _, model, _ = _quantised(bench)
    with fake_tensors(), torch.no_grad():
        fake_(model, "cuda")
        x, prompt = bench.images[0].to("cuda"), model.new_prompt(3, torch.Generator().manual_seed(0))
        model.head(model.continue_from(model.enter(model.stem(x, prompt.to("cuda"))))[1])


def packed_is_smaller(bench: Bench) -> None:
    """packed bytes are fewer than the float model's."""
    quantizer: Quantizer = bench.make()
    packed = quantizer.packed_bytes(bench.pristine)
    full = sum(p.nbytes for p in bench.pristine.parameters())
    bits = Bits.parse(quantizer.bits)
    assert packed >= full * min(bits.weight, 32) / 32 * 0.9, f"{packed} bytes cannot hold the codes"
    if bits.weight < 32:
        assert packed < full, f"{packed} bytes, the float model has {full}"


# -- models, data, corruptions ---------------------------------------------------------------------


def model_parts_make_the_whole(source: Any) -> None:
    """stem, blocks, pool and head make up the forward pass."""
    model: Model = source.skeleton()
    x = torch.rand(2, 3, model.input_size, model.input_size)
    with torch.no_grad():
        probes, z = model.continue_from(model.enter(model.stem(x)))
        assert torch.equal(model.head(z), model(x)), "continue_from differs from forward"
    assert probes, "no layer features"
    assert all(p.ndim == 2 and len(p) == 2 for p in probes), "layer features must be [B, c]"
    assert model.passes.forward_images == 4, "passes must end in `finish`, which counts them"


class _Blank(nn.Module):
    """An input quantizer that leaves nothing of its input."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def model_input_can_be_quantised(source: Any) -> None:
    """reads images through `normalise` alone, with and without a prompt."""
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
    """Quantizers take the first layer of a convolutional network for the one that reads the images."""
    first = next(m for m in model.net.modules() if isinstance(m, nn.Linear | nn.Conv2d))
    seen: list[Tensor] = []
    handle = first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model(x)
        handle.remove()
        same = bool(seen) and torch.equal(seen[0], model.normalise(x))
    assert same, "the first layer among `net`'s modules does not read the images: register that layer first"


def model_runs_quantised(source: Any) -> None:
    """runs under the quantizers that fit it, with every quantizer reached."""
    model: Model = source.skeleton()
    images = torch.rand(2, 3, model.input_size, model.input_size)
    for name in QUICK_QUANTIZERS:
        quantizer: Quantizer = registry.load("quantizers", name)()
        if quantizer.unsupported(model) is None:
            quantised = quantizer.quantize(copy.deepcopy(model).requires_grad_(False), images)
            _all_reached(model, quantised, images)


def model_has_norms(source: Any) -> None:
    """lists its normalisation layers with their blocks."""
    model: Model = source.skeleton()
    blocks = [n.block for n in model.norms()]
    assert blocks, "no norm layers"
    assert blocks == sorted(blocks), "norm layers must come in the order of the blocks"


def model_facts_agree(source: Any) -> None:
    """its class facts are those of the model it builds."""
    model: Model = source.skeleton()
    for fact in ("family", "num_classes", "input_size"):
        assert getattr(model, fact) == getattr(source, fact), f"`{fact}` differs"


def data_is_consistent(data: Any) -> None:
    """images and labels fit each other and stay the same."""
    labels, kept = data.test_labels(), data.classes()
    assert labels.min() >= 0, "negative label"
    assert labels.max() < (data.num_classes if kept is None else len(kept)), "label beyond the classes"
    index = np.arange(min(4, len(labels)))
    domain = _first_domain(data)
    first = data.test_images(domain, index)
    side = data.input_size
    assert first.shape == (len(index), 3, side, side), f"images are {tuple(first.shape)}"
    source, named = data.source_images(), data.source_labels()
    assert source.shape[1:] == first.shape[1:], "source and test images differ in shape"
    assert named is None or len(named) == len(source), "source images and their labels differ in number"
    assert torch.equal(first, data.test_images(domain, index)), "images change"
    assert 0 <= first.min() <= first.max() <= 1, "images must be in [0, 1]"
    assert data.fingerprint() == data.fingerprint(), "fingerprint changes"


def _first_domain(data: Any) -> Domain:
    """A domain that this data has."""
    names = registry.names("corruptions")
    domains = [Domain(name, 0) for name in ("clean", *data.own_domains())]
    domains += [Domain(name, severity) for name in names for severity in range(5, 0, -1)]
    return next(domain for domain in domains if not data.problems([domain]))


PLUGIN_CHECKS: list[Callable[..., None]] = [parameters_are_plain, version_is_text]
METHOD_CHECKS: list[Callable[..., None]] = [
    predicts_every_sample,
    leaves_input_alone,
    leaves_its_features_alone,
    returns_no_graph,
    outputs_as_declared,
    reset_forgets,
    state_continues,
    same_seed_same_numbers,
    memory_as_declared,
    survives_a_broken_batch,
    adapts_to_its_smallest_batch,
    leaves_numpy_rng_alone,
    stays_on_its_device,
]
QUANTIZER_CHECKS: list[Callable[..., None]] = [
    quantised_runs,
    quantizers_are_reached,
    calibration_round_trip,
    calibration_is_deterministic,
    calibration_goes_on,
    norms_stay_adaptable,
    prompts_fit,
    moves_to_a_device,
    packed_is_smaller,
]
MODEL_CHECKS: list[Callable[..., None]] = [
    model_parts_make_the_whole,
    model_input_can_be_quantised,
    model_runs_quantised,
    model_has_norms,
    model_facts_agree,
]
DATA_CHECKS: list[Callable[..., None]] = [data_is_consistent]
