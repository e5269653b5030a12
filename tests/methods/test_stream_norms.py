"""Invariants of IABN with PBRS and of TBR, and of the memories of images."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.methods.streams import images, plain, predict, ready
from tta_bench.api import Model
from tta_bench.plugins import registry
from tta_bench_methods._shared.image_memory import CstuMemory, PbrsMemory
from tta_bench_methods._shared.norms.instance_aware import InstanceAwareNorm
from tta_bench_methods._shared.norms.robust import RobustNorm


@pytest.fixture
def resnet() -> Model:
    return registry.load("models", "resnet-micro")().build()


def layer() -> nn.BatchNorm2d:
    """A BatchNorm2d with statistics and parameters that are not the initial ones."""
    norm = nn.BatchNorm2d(4).eval()
    rng = torch.Generator().manual_seed(0)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    for tensor in (norm.running_mean, norm.running_var, norm.weight.data, norm.bias.data):
        tensor.copy_(torch.rand(4, generator=rng) + 0.5)
    return norm


def maps(seed: int = 1) -> Tensor:
    return torch.randn(3, 4, 5, 5, generator=torch.Generator().manual_seed(seed)) * 3


# -- IABN ------------------------------------------------------------------------------------------


def test_iabn_with_a_wide_tolerance_is_batch_norm() -> None:
    norm = layer()
    with torch.no_grad():
        assert torch.allclose(InstanceAwareNorm(norm, 1e9, 0.1)(maps()), norm(maps()), atol=1e-5)


def test_iabn_without_tolerance_is_instance_norm() -> None:
    norm, x = layer(), maps()
    variance, mean = torch.var_mean(x, (2, 3), keepdim=True)
    wanted = (x - mean) / (variance + norm.eps).sqrt() * norm.weight.view(-1, 1, 1) + norm.bias.view(-1, 1, 1)
    with torch.no_grad():
        assert torch.allclose(InstanceAwareNorm(norm, 0, 0.1)(x), wanted, atol=1e-5)


def test_iabn_corrects_only_beyond_k_standard_errors() -> None:
    norm, x = layer(), maps()
    positions, stable = 25, norm.running_var + norm.eps
    tolerance = 4 * (stable / positions).sqrt()
    gap = x.mean((2, 3)) - norm.running_mean
    mean = norm.running_mean + F.softshrink(gap / tolerance, 1.0) * tolerance
    spread = 4 * stable * math.sqrt(2 / (positions - 1))
    gap = x.var((2, 3)) - norm.running_var
    variance = (norm.running_var + F.softshrink(gap / spread, 1.0) * spread).clamp_min(0)
    wanted = (x - mean[..., None, None]) / (variance + norm.eps).sqrt()[..., None, None]
    wanted = wanted * norm.weight.view(-1, 1, 1) + norm.bias.view(-1, 1, 1)
    with torch.no_grad():
        assert torch.allclose(InstanceAwareNorm(norm, 4, 0.1)(x), wanted, atol=1e-4)


def test_iabn_on_single_positions_uses_the_running_statistics() -> None:
    norm, x = layer(), maps()[:, :, :1, :1]
    with torch.no_grad():
        assert torch.equal(InstanceAwareNorm(norm, 0, 0.1)(x), norm(x))


def test_iabn_that_learns_corrects_the_statistics_of_the_batch_and_takes_them_in() -> None:
    norm, x = layer(), maps()
    aware = InstanceAwareNorm(norm, 1e9, 0.01)
    aware.learning = True
    variance, mean = torch.var_mean(x, (0, 2, 3))
    wanted = F.batch_norm(x, mean, variance, norm.weight, norm.bias, eps=norm.eps)
    with torch.no_grad():
        assert torch.allclose(aware(x), wanted, atol=1e-5)
    taken_in = 0.99 * aware.source + 0.01 * torch.stack([mean, variance])
    assert torch.allclose(aware.proposed, taken_in, atol=1e-6)


def test_without_momentum_iabn_stays_as_it_was(resnet: Model) -> None:
    method = ready("iabn", resnet, momentum=0.0, capacity=4)
    first = predict(method, images())
    assert torch.equal(first, predict(method, images()))


def test_the_memory_moves_the_statistics_when_it_is_due(resnet: Model) -> None:
    method = ready("iabn", resnet, momentum=0.5, capacity=8)
    start = [layer.running.clone() for layer in method.layers]
    predict(method, images(7))
    assert all(torch.equal(a, layer.running) for a, layer in zip(start, method.layers, strict=True))
    before = method.model.passes.forward_images
    predict(method, images(1, seed=5))
    assert method.model.passes.forward_images - before == 1 + 8
    assert not any(torch.equal(a, layer.running) for a, layer in zip(start, method.layers, strict=True))


def test_iabn_gives_the_same_numbers_for_any_batch_size(resnet: Model) -> None:
    x = images(24)
    together, singly = (
        torch.cat([predict(method, part) for part in x.split(size)])
        for size in (24, 5)
        for method in [ready("iabn", copy.deepcopy(resnet), momentum=0.3, capacity=8)]
    )
    assert torch.allclose(together, singly, atol=1e-4)


def test_a_batch_is_cut_where_the_memory_is_due() -> None:
    for arrived, count, wanted in ((5, 20, [3, 8, 8, 1]), (8, 3, [3])):
        memory = offered(PbrsMemory(8, seed=0), [0] * arrived)
        sizes = []
        for part in memory.parts(torch.zeros(count)):
            offered(memory, [0] * len(part))
            sizes.append(len(part))
        assert sizes == wanted


# -- RBN -------------------------------------------------------------------------------------------


def test_rbn_takes_the_batch_in_before_it_normalises() -> None:
    norm, x = layer(), maps()
    robust = RobustNorm(norm, momentum=0.3)
    with torch.no_grad():
        assert torch.allclose(robust(x), norm(x), atol=1e-5), "the stored statistics unless it learns"
    assert torch.equal(robust.running, robust.source)
    robust.learning = True
    variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    mean, variance = 0.7 * norm.running_mean + 0.3 * mean, 0.7 * norm.running_var + 0.3 * variance
    wanted = F.batch_norm(x, mean, variance, norm.weight, norm.bias, eps=norm.eps)
    with torch.no_grad():
        assert torch.allclose(robust(x), wanted, atol=1e-5)
    assert torch.allclose(robust.proposed, torch.stack([mean, variance]), atol=1e-6)
    assert torch.equal(robust.running, robust.source), "until the statistics are remembered"


def test_every_pass_of_rbn_that_learns_goes_on_from_the_one_before() -> None:
    """PeTTA's student makes two, of augmented and of plain images."""
    norm = layer()
    robust, wanted = RobustNorm(norm, momentum=0.3), torch.stack([norm.running_mean, norm.running_var])
    robust.learning = True
    for seed in (1, 2):
        robust(maps(seed))
        variance, mean = torch.var_mean(maps(seed), (0, 2, 3), correction=0)
        wanted = 0.7 * wanted + 0.3 * torch.stack([mean, variance])
    assert torch.allclose(robust.proposed, wanted, atol=1e-6)


def test_rotta_goes_on_after_statistics_that_were_not_finite(resnet: Model) -> None:
    method = ready("rotta", resnet, capacity=6)
    for layer in method.layers:
        layer.proposed = torch.full_like(layer.running, torch.nan)
    predict(method, images(6))
    assert method.skipped_updates == 0
    assert all(layer.running.isfinite().all() for layer in method.layers)
    assert not any(torch.equal(layer.running, layer.source) for layer in method.layers)


def test_gradients_of_rbn_pass_through_the_statistics_of_the_batch() -> None:
    norm, x = layer(), maps().requires_grad_()
    robust = RobustNorm(norm, momentum=0.3)
    robust.learning = True
    (found,) = torch.autograd.grad(robust(x).square().sum(), x)
    variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    gradients = []
    for detached in (False, True):
        used = [each.detach() if detached else each for each in (mean, variance)]
        mixed = [0.7 * old + 0.3 * new for old, new in zip(robust.source, used, strict=True)]
        scale = norm.weight / (mixed[1] + norm.eps).sqrt()
        y = (x - mixed[0].view(-1, 1, 1)) * scale.view(-1, 1, 1) + norm.bias.view(-1, 1, 1)
        gradients += torch.autograd.grad(y.square().sum(), x, retain_graph=True)
    assert torch.allclose(found, gradients[0], atol=1e-4)
    assert not torch.allclose(found, gradients[1], atol=1e-2)


# -- memories --------------------------------------------------------------------------------------


def offered(memory: Any, labels: list[int], *more: Any) -> Any:
    for i, label in enumerate(labels):
        memory.offer_(torch.tensor([float(i)]), label, *(each[i] for each in more))
    return memory


def test_pbrs_keeps_classes_in_equal_shares() -> None:
    labels = [0] * 30 + [1] * 4 + [2] * 30
    memory = offered(PbrsMemory(12, seed=0), labels)
    assert len(memory) == 12
    assert [memory.labels.count(c) for c in range(3)] == [4, 4, 4]
    assert all(labels[int(image)] == label for image, label in zip(memory.images, memory.labels, strict=True))


def test_pbrs_of_one_class_gives_all_images_equal_chances() -> None:
    trials = 600
    kept = torch.zeros(20)
    for seed in range(trials):
        for image in offered(PbrsMemory(5, seed), [0] * 20).images:
            kept[int(image)] += 1
    expected, deviation = trials / 4, (trials * 0.25 * 0.75) ** 0.5
    assert (kept - expected).abs().max() < 4 * deviation


def test_cstu_respects_quotas_and_lets_only_worse_images_leave() -> None:
    rng = torch.Generator().manual_seed(0)
    memory = CstuMemory(capacity=16, classes=5)
    for i in range(200):
        label = int(torch.randint(3 if i < 100 else 5, (), generator=rng))
        entropy = float(torch.rand((), generator=rng)) * math.log(5)
        before = {float(image): memory.score(k) for k, image in enumerate(memory.images)}
        memory.offer_(torch.tensor(float(i)), label, entropy)
        now = {float(image) for image in memory.images}
        gone = before.keys() - now
        assert len(gone) <= 1
        assert all(before[g] > 0.5 + entropy / math.log(5) for g in gone)
        assert len(memory) <= 16
        assert max(memory.labels.count(c) for c in range(5)) <= math.ceil(16 / 5)


def test_a_new_image_of_cstu_has_age_one_and_all_grow_older() -> None:
    assert offered(CstuMemory(4, 2), [0, 1, 0], [0.1, 0.2, 0.3]).ages == [3, 2, 1]


@pytest.mark.parametrize("memory", [PbrsMemory(4, 0), CstuMemory(4, 2)])
def test_a_memory_keeps_copies(memory: Any) -> None:
    image = torch.zeros(1)
    memory.offer_(image, 0, *([0.1] if isinstance(memory, CstuMemory) else []))
    image += 1
    assert memory.images[0] == 0


def test_cstu_of_full_memory_takes_from_the_largest_classes_and_at_quota_from_the_own() -> None:
    """Capacity 4, two classes, so a quota of 2; entropies decide among images of nearly one age."""
    memory = offered(CstuMemory(4, 2), [0, 0, 1, 1], [0.1, 0.6, 0.3, 0.2])
    memory.offer_(torch.tensor([9.0]), 0, 0.0)  # class 0 is at its quota: its most uncertain image leaves
    assert [float(image) for image in memory.images] == [0, 2, 3, 9]
    memory.offer_(torch.tensor([10.0]), 1, 0.69)  # more uncertain than what could leave
    assert [float(image) for image in memory.images] == [0, 2, 3, 9]
    crowded = offered(CstuMemory(4, 3), [0, 0, 1, 1], [0.1, 0.2, 0.3, 0.9])
    crowded.offer_(torch.tensor([9.0]), 2, 0.0)  # below its quota in a full memory
    assert [float(image) for image in crowded.images] == [0, 1, 2, 9]


def test_the_score_of_cstu_by_hand() -> None:
    memory = offered(CstuMemory(4, 2), [0], [0.5])
    assert memory.score(0) == pytest.approx(1 / (1 + math.exp(-1 / 4)) + 0.5 / math.log(2))


@pytest.mark.parametrize(("drawn", "kept"), [(0.49, True), (0.51, False)])
def test_pbrs_keeps_an_image_of_a_largest_class_by_its_share(
    drawn: float, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class with 2 of 3 seen images stored keeps a fourth with probability 2/4."""

    class Fixed:
        def __init__(self, seed: int) -> None: ...

        def random(self) -> float:
            return drawn

        def choice(self, options: list[int]) -> int:
            return options[0]

    monkeypatch.setattr("tta_bench_methods._shared.image_memory.Random", Fixed)
    memory = PbrsMemory(2, seed=0)
    for i in range(2):
        memory.offer_(torch.tensor([float(i)]), 0)
    memory.seen[0] = 3
    memory.offer_(torch.tensor([9.0]), 0)
    assert (9.0 in [float(image) for image in memory.images]) == kept


# -- TBR -------------------------------------------------------------------------------------------


def test_the_first_batch_of_tbr_is_normalised_by_itself(resnet: Model) -> None:
    method = ready("tbr", copy.deepcopy(resnet))
    resnet.use_batch_statistics()
    assert torch.allclose(predict(method, images()), plain(resnet, images()), atol=1e-4)


def test_tbr_on_the_same_batch_again_and_again_is_constant(resnet: Model) -> None:
    method = ready("tbr", resnet)
    first = predict(method, images())
    for _ in range(2):
        assert torch.allclose(predict(method, images()), first, atol=1e-3)


def test_tbr_without_weight_of_the_past_uses_the_batch_before(resnet: Model) -> None:
    method = ready("tbr", resnet, momentum=0.0)
    one, two, three = (maps(seed) for seed in (1, 2, 3))
    norm = method.layers[0]
    norm.norm = layer()
    norm.reset()
    for x in (one, two):
        norm(x)
        norm.running = norm.proposed
    with torch.no_grad():
        found = norm(three)
    variance, mean = torch.var_mean(two, (0, 2, 3), correction=0, keepdim=True)
    weight, bias = norm.norm.weight.view(-1, 1, 1), norm.norm.bias.view(-1, 1, 1)
    wanted = (three - mean) / (variance + norm.norm.eps).sqrt() * weight + bias
    assert torch.allclose(found, wanted, atol=1e-4)


def test_tbr_keeps_95_of_100_parts_of_the_past_mean_and_deviation(resnet: Model) -> None:
    norm = ready("tbr", resnet).layers[0]
    norm.norm = layer()
    norm.reset()
    wanted = None
    for seed in range(3):
        variance, mean = torch.var_mean(maps(seed), (0, 2, 3), correction=0)
        batch = torch.stack([mean, (variance + norm.norm.eps).sqrt()])
        wanted = batch if wanted is None else 0.95 * wanted + 0.05 * batch
        norm(maps(seed))
        norm.running = norm.proposed
    assert torch.allclose(norm.running, wanted, atol=1e-5)


@pytest.mark.parametrize("name", ["tbr", "iabn"])
def test_they_refuse_networks_without_batch_norm(name: str) -> None:
    vit = registry.load("models", "vit-micro")().build()
    assert registry.load("methods", name)().unsupported(vit) == (
        "needs BatchNorm2d layers, and vit-micro has none"
    )
