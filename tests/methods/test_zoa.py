"""ZOA (Deng et al., ACM MM 2025; docs/methods.md) on the embedded networks, whatever their weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.streams import assert_same, random_images, saved
from tta_bench.api import Model, ModelSource, Source, Target
from tta_bench.models.imagenet import ResNet50, VimS, VitB
from tta_bench.models.micro import ResNetMicro, VimMicro, VitMicro
from tta_bench_methods._shared.selection import FlatParameters, adapted_norms
from tta_bench_methods._shared.shift_detection import DomainMonitor, channel_statistics, symmetric_kl
from tta_bench_methods.shift import Shift
from tta_bench_methods.zoa import Zoa
from tta_bench_methods.zoa.bank import Bank, BankOptions, largest_layer_mean
from tta_bench_methods.zoa.differences import CORRECTED, RELEASED
from tta_bench_methods.zoa.estimator import AdamW, draw, slope

MICRO = [VitMicro, ResNetMicro, VimMicro]
BATCH = 8


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def images(seed: int, count: int = BATCH, contrast: float = 1.0) -> Tensor:
    return random_images(seed, count, contrast)


def stream(batches: int, every: int = 2) -> list[Tensor]:
    """Two domains that take turns."""
    return [images(i, contrast=1.0 if i // every % 2 == 0 else 0.2) for i in range(batches)]


def ready(network: type[ModelSource], **fields: Any) -> Zoa:
    """A method on a model of its own; steps large enough to see."""
    method = Zoa(**{"lr": 1e-3, "min_batch": BATCH, **fields})
    method.setup(network().build(), Source(images(1000, 32), 16))
    return method


def bank_of(vectors: list[list[float]], sizes: list[int], **fields: Any) -> Bank:
    """A bank that stored these vectors one after the other."""
    options = {
        "capacity": 3,
        "policy": "similar",
        "alpha_init": "derived",
        "temperature": 10.0,
        "residual_limit": 0.01,
        "differences": CORRECTED,
    }
    bank = Bank(torch.zeros(sum(sizes)), sizes, BankOptions(**{**options, **fields}))
    for vector in vectors:
        bank.store_(torch.tensor(vector) - bank.combine(), torch.Generator())
    return bank


# -- what is adapted -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "layers", "numbers"), [(VitB, 16, 24_576), (ResNet50, 24, 8_704), (VimS, 16, 6_144)]
)
def test_selection_has_the_size_behind_the_papers_rows(
    network: type[ModelSource], layers: int, numbers: int
) -> None:
    with torch.device("meta"):
        model = network().skeleton()
    norms = adapted_norms(model)
    assert len(norms) == layers
    assert sum(p.numel() for n in norms for p in n.module.parameters()) == numbers


def test_stem_ends_and_branch_ends_stay_frozen() -> None:
    names = [n.name for n in adapted_norms(ResNetMicro().build())]
    assert names[0] == "layer1.1.bn1"
    assert not [n for n in names if "layer4" in n or "bn3" in n or "downsample" in n]


@pytest.mark.parametrize("network", MICRO)
def test_layers_read_the_flat_vector(network: type[ModelSource]) -> None:
    model = network().build()
    parameters = FlatParameters(adapted_norms(model))
    parameters.write_(torch.full_like(parameters.source, 2.0))
    for norm in adapted_norms(model):
        fresh = network().build().net.get_submodule(norm.name)
        assert torch.equal(norm.module.weight, fresh.weight + 2)


# -- the whole step --------------------------------------------------------------------------------


@pytest.mark.parametrize("network", MICRO)
def test_without_steps_it_is_activation_shifting(network: type[ModelSource]) -> None:
    method = ready(network, lr=0.0, c=1e-30, c_alpha=1e-30, tau=1e9)
    model, baseline = network().build(), Shift()
    model.use_batch_statistics()
    baseline.setup(model, Source(images(1000, 32), 16))
    for x in stream(4):
        assert torch.equal(method.step(x), baseline.step(model.features(x)))
    assert len(method.bank) == 0


@pytest.mark.parametrize("network", MICRO)
@pytest.mark.parametrize("q", [1, 3])
def test_passes_and_shared_prefix(network: type[ModelSource], q: int) -> None:
    method = ready(network, q=q)
    calls = {"frozen": 0, "adapted": 0}
    blocks = method.model.blocks
    blocks[0].register_forward_hook(lambda *_: calls.update(frozen=calls["frozen"] + 1))
    blocks[method.start].register_forward_hook(lambda *_: calls.update(adapted=calls["adapted"] + 1))
    before = method.model.passes.forward_images
    method.step(images(0))
    assert method.model.passes.forward_images - before == (1 + q) * BATCH
    assert calls == {"frozen": 1, "adapted": 1 + q}
    assert method.passes() == (1 + q, 0)


@pytest.mark.parametrize("network", MICRO)
def test_sharing_the_prefix_changes_no_number(network: type[ModelSource]) -> None:
    shared, separate = ready(network), ready(network, share_prefix=False)
    for x in stream(4):
        assert torch.equal(shared.step(x), separate.step(x))
    assert torch.equal(shared.residual, separate.residual)


def test_a_full_state_is_as_large_as_it_gets() -> None:
    method = ready(VitMicro, bank_size=3)
    method.step(images(0))
    method.fill()
    assert len(method.bank) == 3
    method.step(images(1, contrast=0.2))
    assert len(method.bank) == 3


@pytest.mark.parametrize("network", MICRO)
def test_no_graph_even_if_parameters_want_one(network: type[ModelSource]) -> None:
    method = ready(network)
    method.model.requires_grad_(True)
    with torch.enable_grad():
        outputs = [method.step(x) for x in stream(4)]
    tensors = [*outputs, method.residual, method.bank.deltas, method.bank.logits, method.history.mean]
    assert not any(t.requires_grad for t in tensors)
    assert method.model.passes.backward_images == 0


@pytest.mark.parametrize("network", MICRO)
@pytest.mark.parametrize("variant", ["corrected", "released"])
def test_a_cut_stream_goes_on_bit_for_bit(network: type[ModelSource], variant: str) -> None:
    batches = stream(10)
    whole = ready(network, variant=variant, bank_size=2, q=2)
    expected = [whole.step(x) for x in batches]
    first = ready(network, variant=variant, bank_size=2, q=2)
    for x in batches[:7]:
        first.step(x)
    snapshot = first.state_dict()
    kept = copy.deepcopy(snapshot)
    on_disk = saved(snapshot)
    for x in batches[7:]:
        first.step(x)
    assert_same(snapshot, kept)  # later steps do not reach into it
    second = ready(network, variant=variant, bank_size=2, q=2)
    second.load_state_dict(on_disk)
    for x, output in zip(batches[7:], expected[7:], strict=True):
        assert torch.equal(second.step(x), output)
    assert torch.equal(second.parameters.values, whole.parameters.values)
    assert len(second.bank) == 2


@pytest.mark.parametrize("network", MICRO)
def test_reset_restores_the_source_and_replays(network: type[ModelSource]) -> None:
    method = ready(network)
    before = {k: v.clone() for k, v in method.model.net.state_dict().items()}
    first = [method.step(x) for x in stream(6)]
    assert not torch.equal(method.parameters.values, method.parameters.source)
    method.reset()
    for name, value in method.model.net.state_dict().items():
        assert torch.equal(value, before[name]), name
    for x, output in zip(stream(6), first, strict=True):
        assert torch.equal(method.step(x), output)


def test_another_seed_perturbs_otherwise() -> None:
    residuals = []
    for seed in (2020, 2020, 7):
        method = ready(VitMicro, seed=seed)
        method.step(images(0))
        residuals.append(method.residual)
    assert torch.equal(residuals[0], residuals[1])
    assert not torch.equal(residuals[0], residuals[2])


def test_rows_of_a_batch_keep_to_themselves() -> None:
    x, order = images(0), torch.randperm(BATCH, generator=torch.Generator().manual_seed(0))
    plain, permuted = ready(VitMicro).step(x), ready(VitMicro).step(x[order])
    assert torch.allclose(plain[order], permuted, atol=1e-5)


@pytest.mark.parametrize("network", MICRO)
def test_what_is_not_finite_leaves_no_trace(network: type[ModelSource]) -> None:
    method = ready(network)
    for x in stream(3):
        method.step(x)
    before, bad = copy.deepcopy(method.state_dict()), images(3, contrast=0.2)
    bad[1] = float("nan")
    assert method.step(bad).shape == (BATCH, 10)
    assert method.skipped_updates == 1
    after = method.state_dict()
    for name in ("residual", "bank", "adam", "domain", "mean"):
        assert_same(before[name], after[name])
    assert method.step(images(4)).isfinite().all()


def test_an_infinite_perturbed_loss_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    method = ready(VitMicro)
    forward, calls = method._forward, []

    def broken(*args: Any) -> tuple[float, Tensor]:
        calls.append(1)
        loss, z = forward(*args)
        return (loss if len(calls) == 1 else float("inf")), z

    monkeypatch.setattr(method, "_forward", broken)
    assert method.step(images(0)).isfinite().all()
    assert method.skipped_updates == 1
    assert torch.equal(method.parameters.values, method.parameters.source)


@pytest.mark.filterwarnings("ignore:std")
def test_a_batch_of_one_is_predicted() -> None:
    method = ready(VitMicro)
    assert method.step(images(0, count=1)).isfinite().all()
    assert method.skipped_updates == 1
    assert method.monitor.domain is None


# -- shift detection -------------------------------------------------------------------------------


@pytest.mark.parametrize("network", MICRO)
def test_distance_of_domains(network: type[ModelSource]) -> None:
    model: Model = network().build()
    clean, grey = (
        channel_statistics(model.stem_samples(model.stem(images(0, contrast=c)))) for c in (1.0, 0.2)
    )
    assert symmetric_kl(clean, clean).item() == 0
    assert symmetric_kl(clean, grey).item() > 0.2


def test_partial_batches_neither_detect_nor_update() -> None:
    monitor = DomainMonitor(threshold=0.1, keep=0.8, min_batch=None)
    rng = torch.Generator().manual_seed(0)
    samples = torch.randn(100, 4, generator=rng)
    one, other = channel_statistics(samples), channel_statistics(samples * 9)
    assert not monitor.changed(one, 64)  # the first batch says how many are enough
    assert not monitor.changed(other, 63)
    assert monitor.domain is one
    assert monitor.changed(other, 64)
    assert monitor.domain is other


def test_constant_channels_do_not_divide_by_zero() -> None:
    monitor = DomainMonitor(0.1, 0.8, None)
    black = channel_statistics(torch.zeros(10, 2))
    assert not monitor.changed(black, 4)
    assert not monitor.changed(black, 4)


@pytest.mark.parametrize(("variant", "keep"), [("corrected", 0.8), ("released", 0.64)])
def test_domain_statistics_move_once_or_in_both_passes(variant: str, keep: float) -> None:
    method = ready(VitMicro, variant=variant)
    a, b = (channel_statistics(method.model.stem_samples(method.model.stem(images(i)))) for i in (0, 1))
    method.step(images(0))
    method.step(images(1))
    assert torch.allclose(method.monitor.domain, keep * a + (1 - keep) * b, atol=1e-6)


@pytest.mark.parametrize("variant", ["corrected", "released"])
def test_shift_on_the_first_batch_of_a_new_domain(variant: str) -> None:
    method = ready(VitMicro, variant=variant, lr=0.0, bank_size=0)
    model, x = VitMicro().build(), images(1, contrast=0.2)
    method.step(images(0))
    offset = method.history.offset()
    z = model.features(x)
    expected = model.head((z + offset).float() if variant == "released" else z)
    assert torch.equal(method.step(x), expected)
    assert torch.equal(method.history.mean, z.double().mean(0))


def test_without_shifting_features_are_left_as_they_are() -> None:
    shifting, plain = (ready(VitMicro, lr=0.0, bank_size=0, tau=1e9, shift=on) for on in (True, False))
    model, batches = VitMicro().build(), [images(0), images(1, contrast=0.5)]
    outputs = [(shifting.step(x), plain.step(x), model(x)) for x in batches]
    assert all(torch.equal(b, expected) for _, b, expected in outputs)
    assert not torch.equal(outputs[1][0], outputs[1][1])


@pytest.mark.parametrize(
    ("variant", "network", "stored"),
    [
        ("released", ResNetMicro, 1),
        ("released", VitMicro, 0),
        ("corrected", ResNetMicro, 0),
    ],
)
def test_the_first_batch_is_a_new_domain_where_source_images_pass_the_detector(
    variant: str, network: type[ModelSource], stored: int
) -> None:
    method = ready(network, variant=variant)
    for _ in range(2):
        method.step(images(0, contrast=0.2))
        assert len(method.bank) == stored
        method.reset()
    method.step(images(0))  # of the source's domain
    assert len(method.bank) == 0


@pytest.mark.parametrize(("variant", "stored"), [("corrected", 1), ("released", 0)])
def test_released_code_sees_no_shift_in_batches_under_64(variant: str, stored: int) -> None:
    method = ready(VitMicro, variant=variant, min_batch=None)
    for contrast in (1.0, 0.2):
        method.step(images(0, contrast=contrast))
    assert len(method.bank) == stored
    for seed, contrast in ((1, 1.0), (2, 0.2)):
        method.step(images(seed, 64, contrast))
    assert len(method.bank) > stored


@pytest.mark.parametrize("network", MICRO)
def test_the_released_shift_target_is_a_scalar_on_feature_maps(network: type[ModelSource]) -> None:
    method = ready(network, variant="released")
    last = method.source_statistics.means[-1]
    expected = last if method.model.tokens else last[-1:]
    assert torch.equal(method.history.target, expected)


# -- the estimator ---------------------------------------------------------------------------------


def test_rsu_keeps_away_from_zero() -> None:
    e = draw(10_000, "rsu", torch.Generator().manual_seed(0))
    assert e.abs().min() >= 0.5
    assert e.abs().max() <= 1
    assert abs(e.sign().mean()) < 0.05


@pytest.mark.parametrize("distribution", ["rsu", "gaussian"])
def test_estimates_average_to_the_gradient_of_a_quadratic(distribution: Any) -> None:
    rng, c = torch.Generator().manual_seed(0), 1e-4
    point, scale = torch.randn(20, generator=rng).double(), torch.rand(20, generator=rng).double() + 0.5

    def loss(x: Tensor) -> float:
        return (scale * x.square()).sum().item()

    draws = [draw(20, distribution, rng).double() for _ in range(4000)]
    slopes = [slope(loss(point + c * e) - loss(point), c, e, distribution) for e in draws]
    estimate, true = torch.stack(slopes).mean(0), 2 * scale * point
    assert torch.cosine_similarity(estimate, true, dim=0) > 0.98


def test_adamw_is_adamw() -> None:
    rng = torch.Generator().manual_seed(0)
    values = torch.randn(5, generator=rng)
    theirs = torch.nn.Parameter(values.clone())
    optimizer = torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1)
    moments = AdamW.fresh(values)
    for _ in range(5):
        theirs.grad = torch.randn(5, generator=rng)
        values, moments = moments.step(values, theirs.grad, 0.01, 0.1)
        optimizer.step()
    assert torch.allclose(values, theirs, atol=1e-6)


@pytest.mark.parametrize("variant", ["corrected", "released"])
def test_released_adam_forgets_and_steps_by_signs(variant: str) -> None:
    method = ready(VitMicro, variant=variant, weight_decay_alpha=0.0, store="every", store_every=3)
    for x in stream(4, every=99):  # the last of them is the first with a bank
        method.step(x)
    before = method.bank.logits
    assert method.adam.steps == 1
    method.step(images(4))
    moved = (method.bank.logits - before).abs()
    by_signs = torch.allclose(moved, torch.full_like(before, method.lr_alpha), atol=1e-4)
    assert by_signs == (variant == "released")
    assert method.adam.steps == (1 if variant == "released" else 2)


# -- the bank --------------------------------------------------------------------------------------


def test_storing_and_removing_leave_the_parameters_alone() -> None:
    rng = torch.Generator().manual_seed(0)
    sizes = [30, 20, 50]
    bank = bank_of([], sizes, capacity=2)
    for _ in range(6):
        residual = torch.randn(100, generator=rng) * 0.1
        bank.logits = bank.logits + torch.randn(len(bank.logits), generator=rng) * 0.05
        total = bank.combine() + residual
        residual = bank.store_(residual, rng)
        assert (bank.combine() + residual - total).abs().max() <= 1e-6
        assert torch.equal(bank.deltas[-1], total)
        assert largest_layer_mean(residual, sizes) <= 0.01 + 1e-6
        assert len(bank) <= 2


def test_a_small_residual_still_gets_the_largest_weight() -> None:
    bank = bank_of([], [4])
    bank.store_(torch.full((4,), 1e-3), torch.Generator())  # s = 1, so ln(s − 1) = −∞
    assert torch.equal(bank.logits, torch.zeros(2))


@pytest.mark.parametrize(("init", "low", "high"), [("one", 0.99, 1), ("zero", 0, 0.01), ("random", 0, 1)])
def test_other_initial_weights(init: str, low: float, high: float) -> None:
    bank = bank_of([[1.0, 1.0], [1.0, -1.0]], [2], alpha_init=init)
    assert low <= (10 * bank.logits).softmax(0)[-1] <= high


VECTORS = [[1.0, 0.0, 1.0, 0.0], [1.0, 0.1, 1.0, 0.1], [0.0, 1.0, 0.0, 1.0], [-1.0, 0.0, 0.0, 1.0]]


def test_the_older_of_the_most_similar_pair_goes() -> None:
    bank = bank_of(VECTORS, [2, 2])
    assert torch.allclose(bank.deltas, torch.tensor([[0.0] * 4, *VECTORS[1:]]))


@pytest.mark.parametrize("stale", [False, True])
def test_similarities_after_a_removal(stale: bool) -> None:
    differences = RELEASED if stale else CORRECTED
    bank = bank_of(VECTORS, [2, 2], differences=differences)
    fresh = bank_of([], [2, 2], capacity=9, differences=differences)
    for delta in bank.deltas[1:]:
        fresh._append_(delta, torch.tensor(0.0))
    assert torch.allclose(bank.similarity[:, -1], fresh.similarity[:, -1], atol=1e-6)
    assert torch.allclose(bank.similarity, fresh.similarity, atol=1e-6) == (not stale)


@pytest.mark.parametrize("released", [False, True])
def test_where_no_pair_is_similar_released_code_forgets_the_oldest(released: bool) -> None:
    """All cosines are negative; released code compares them with the zeros of what is no pair."""
    vectors = [[1.0, 0.0], [-0.5, 0.87], [-0.57, -0.82]]  # 0°, 120°, 235°
    bank = bank_of(vectors, [2], differences=RELEASED if released else CORRECTED)
    assert (bank.similarity[[0, 0, 1], [1, 2, 2]] < -0.4).all()
    assert bank._redundant(torch.Generator()) == (0 if released else 1)


def test_similarity_is_the_mean_over_layers() -> None:
    bank = bank_of([[1.0, 0.0, 0.0, 2.0]], [1, 3])
    assert bank._cosines(torch.tensor([3.0, 1.0, 0.0, 0.0])).item() == pytest.approx(0.5)


def test_other_policies() -> None:
    queue = bank_of(VECTORS, [4], policy="dequeue")
    assert torch.allclose(queue.deltas[1:], torch.tensor(VECTORS[1:]))
    everything = bank_of(VECTORS, [4], policy="keep_all")
    assert len(everything) == 4
    assert len(bank_of(VECTORS, [4], policy="random")) == 3
    assert queue.similarity.numel() == everything.similarity.numel() == 0


def test_shifts_and_vectors_are_counted_until_a_reset_and_in_a_saved_state() -> None:
    method, other = ready(VitMicro, bank_size=2), ready(VitMicro, bank_size=2)
    for x in stream(8):
        method.step(x)
    assert method.counters() == {"detected_shifts": 3, "stored_vectors": 2}
    other.load_state_dict(saved(method.state_dict()))
    assert other.counters() == method.counters()
    method.reset()
    assert method.counters() == {"detected_shifts": 0, "stored_vectors": 0}


def test_a_shift_stores_and_the_bank_stays_small() -> None:
    method = ready(VitMicro, bank_size=2)
    sizes = []
    for x in stream(12):
        method.step(x)
        sizes.append(len(method.bank))
    assert sizes == [0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]
    numbers = sum(p.numel() for n in adapted_norms(method.model) for p in n.module.parameters())
    assert method.bank.deltas.nbytes == (1 + 2) * numbers * 4


def test_v1_has_no_bank_and_a_schedule_needs_no_shift() -> None:
    alone, scheduled = ready(VitMicro, bank_size=0), ready(VitMicro, store="every", store_every=2)
    for x in stream(5, every=99):
        scheduled.step(x)
    for x in stream(5):
        alone.step(x)
    assert len(alone.bank) == 0
    assert len(scheduled.bank) == 2


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "bits", "lr", "c", "c_alpha", "lam", "tau"),
    [
        ("vit", "W8A8", 5e-4, 0.02, 0.05, 30, 0.1),
        ("vit", "FP32", 5e-4, 0.02, 0.05, 30, 0.1),
        ("vit", "W6A6", 2e-4, 0.02, 0.05, 30, 0.1),
        ("vit", "W4A4", 5e-5, 0.02, 0.05, 30, 0.1),
        ("vit", "W3A3", 5e-5, 0.02, 0.05, 30, 0.1),
        ("resnet", "W8A8", 1e-4, 0.01, 0.05, 1, 0.2),
        ("resnet", "W2A4", 5e-5, 0.01, 0.05, 1, 0.2),
        ("vim", "W8A8", 5e-4, 0.03, 0.03, 30, 0.1),
    ],
)
def test_presets(family: str, bits: str, lr: float, c: float, c_alpha: float, lam: float, tau: float) -> None:
    expected = {"lr": lr, "c": c, "c_alpha": c_alpha, "lam": lam, "tau": tau}
    found = Zoa.presets(Target("any", family, bits))
    assert {name: found[name] for name in expected} == expected
    assert Zoa.presets(Target("any", "mlp", bits)) == {}


@pytest.mark.parametrize("wrong", [{"q": 0}, {"c": 0.0}, {"bank_size": -1}, {"store_every": 0}])
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Zoa(**wrong)
