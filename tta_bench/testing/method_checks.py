"""Checks of methods on a short stream."""

from __future__ import annotations

import copy
import io

import numpy as np
import torch

from tta_bench.footprint.fake_tensors import fake_tensors
from tta_bench.footprint.skeleton import fake_
from tta_bench.storage import codec
from tta_bench.testing.bench import Bench, assert_same


def predicts_every_sample(bench: Bench) -> None:
    """predicts every sample, also in a last batch of one image."""
    method = bench.ready()
    for x in (bench.images[0], bench.images[1][:1]):
        output = bench.step(method, x)
        wanted = (len(x), bench.pristine.num_classes)
        assert output.shape == wanted, f"the output has shape {tuple(output.shape)}, expected {wanted}"
        assert output.isfinite().all(), "output is not finite"


def leaves_input_alone(bench: Bench) -> None:
    """does not change its input in place."""
    method = bench.ready()
    with torch.no_grad():
        given = bench.given(method, bench.images[0])
        before = given.clone()
        method.step(given)
    assert torch.equal(given, before), "the batch was changed in place"


def leaves_its_features_alone(bench: Bench) -> None:
    """a method that consumes features does not change the network."""
    method = bench.ready()
    if method.consumes == "images":
        return
    bench.stream(method)
    x = bench.images[0]
    with torch.no_grad():
        same = torch.equal(method.model.features(x), bench.backbone(method).features(x))
    assert same, (
        'its features are computed by an unchanged network. To change the network, set consumes = "images"'
    )


def returns_no_graph(bench: Bench) -> None:
    """builds no autograd graph unless it declares backprop."""
    method = bench.ready()
    outputs = bench.stream(method)
    assert not any(o.requires_grad for o in outputs), "outputs have an autograd graph: detach them"
    if not method.backprop:
        counted = method.model.passes.backward_images
        assert counted == 0, f"{counted} images had a backward pass, but `backprop` is False"


def outputs_as_declared(bench: Bench) -> None:
    """returns what `outputs` declares: logits or probabilities."""
    method = bench.ready()
    if method.outputs == "probabilities":
        sums = bench.step(method, bench.images[0]).sum(1)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-4), "rows do not sum to one"


def reset_forgets(bench: Bench) -> None:
    """after reset(), gives the same outputs again, bit for bit."""
    method = bench.ready()
    first = bench.stream(method)
    method.reset()
    assert_same(first, bench.stream(method), "after reset()")


def state_continues(bench: Bench) -> None:
    """a saved state continues in a new instance bit for bit."""
    uncut = bench.ready()
    whole, counted = bench.stream(uncut), uncut.counters()
    first = bench.ready()
    bench.step(first, bench.images[0])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    bench.stream(first)  # would change a state that shares memory with the method
    second = bench.ready()
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert_same(whole[1:], [bench.step(second, x) for x in bench.images[1:]], "after load_state_dict()")
    assert second.counters() == counted, "counters() differs after load_state_dict(): save what it counts"


def predicts_without_adapting(bench: Bench) -> None:
    """predict() gives an answer for every image and changes nothing for later batches."""
    one, two = bench.ready(), bench.ready()
    for method in (one, two):
        bench.step(method, bench.images[0])
    with torch.no_grad():
        output = one.predict(bench.given(one, bench.images[2]))
    assert output.shape == (len(bench.images[2]), bench.pristine.num_classes), f"shape {tuple(output.shape)}"
    assert output.isfinite().all(), "output is not finite"
    assert_same([bench.step(one, bench.images[1])], [bench.step(two, bench.images[1])], "after predict()")
    assert one.counters() == two.counters(), "predict() changes counters()"


def same_seed_same_numbers(bench: Bench) -> None:
    """two instances give the same numbers and share nothing."""
    one, two = bench.ready(), bench.ready()
    outputs = [(bench.step(one, x), bench.step(two, x)) for x in bench.images]
    assert_same([a for a, _ in outputs], [b for _, b in outputs], "two instances")


def memory_as_declared(bench: Bench) -> None:
    """depends on earlier batches only if it declares stream memory."""
    method = bench.ready()
    if method.memory == "stream":
        return
    late = bench.stream(method)[-1]
    early = bench.step(bench.ready(), bench.images[-1])
    assert_same([late], [early], "the last batch, alone")


def survives_a_broken_batch(bench: Bench) -> None:
    """still predicts after a batch with NaN values."""
    method = bench.ready()
    broken = bench.images[1].clone()
    broken[0] = torch.nan
    for x in (bench.images[0], broken):
        bench.step(method, x)
    assert bench.step(method, bench.images[2]).isfinite().all(), "the output for the next batch is not finite"
    unexplained = method.skipped_updates - sum(method.skipped_reasons.values())
    assert not unexplained, "an update was skipped without a reason: call self.skip(reason)"


def adapts_to_its_smallest_batch(bench: Bench) -> None:
    """adapts to batches of `min_batch_size`; predicts a smaller last batch without adapting to it."""
    method = bench.ready()
    least = method.min_batch_size
    assert method.refuses_batch(least) is None, "refuses batches of `min_batch_size`"
    outputs = [bench.step(method, x[:least]) for x in bench.images]
    assert all(output.isfinite().all() for output in outputs), "output is not finite"
    assert not method.skipped_updates, f"skips updates: {dict(method.skipped_reasons)}"
    if least > 1:
        assert method.refuses_batch(least - 1), "accepts a stream of batches smaller than `min_batch_size`"
        assert bench.step(method, bench.images[0][: least - 1]).isfinite().all(), "output is not finite"
        assert method.skipped_updates == 1, "does not count a smaller last batch as skipped: call self.skip"


def leaves_numpy_rng_alone(bench: Bench) -> None:
    """does not use NumPy's global random generator."""
    before = np.random.get_state()[1].copy()  # type: ignore[index, union-attr]
    bench.stream(bench.ready())
    after = np.random.get_state()[1]  # type: ignore[index]
    assert np.array_equal(before, after), (
        "the state of NumPy's global generator changed: use your own generator"
    )


def stays_on_its_device(bench: Bench) -> None:
    """computes on its model's device, also after a restart (checked with fake CUDA tensors)."""
    models = [copy.deepcopy(bench.pristine) for _ in range(2)]
    with fake_tensors():
        for model in models:
            fake_(model, "cuda")
        first, second = map(bench.ready, models)
        x = bench.images[0][:2].to("cuda")
        outputs = [bench.step(first, x)]
        saved = codec.placed(first.state_dict(), torch.device("cpu"))
        second.load_state_dict(codec.placed(saved, x.device))
        outputs.append(bench.step(second, x))
    assert all(o.device == x.device for o in outputs), "outputs are not on the device of the batch"
