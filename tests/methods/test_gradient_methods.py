"""The backprop methods: what all of them promise, then what each paper's algorithm implies."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tta_bench.api import Model, ModelSource, Passes, Source, Target
from tta_bench.models.imagenet import VitB
from tta_bench.models.micro import ResNetMicro, VimMicro, VitMicro
from tta_bench_methods._shared.augmix import draw_recipe, make_views
from tta_bench_methods._shared.gradient import GradientMethod, early_norms, entropy, lr_for_batch, mean_over
from tta_bench_methods._shared.jitter import BLUR_REACH, blur, hue, jitter
from tta_bench_methods.bn_adapt import BnAdapt
from tta_bench_methods.cotta import CoTTA, symmetric_cross_entropy
from tta_bench_methods.deyo import DeYO, shuffle_tiles
from tta_bench_methods.eata import Eata, Eta, sample_weight
from tta_bench_methods.memo import Memo, marginal_entropy
from tta_bench_methods.sar import Sar, uphill
from tta_bench_methods.tent import Tent

FAMILIES: dict[str, Callable[[], ModelSource]] = {"vit": VitMicro, "resnet": ResNetMicro, "vim": VimMicro}
BATCH = 6

# Settings under which every batch teaches something, whatever the weights of the micro models are.
METHODS: dict[str, Callable[[], GradientMethod]] = {
    "tent": lambda: Tent(lr=0.01),
    "sar": lambda: Sar(lr=0.1, margin=2, recover_below=0),
    "sar-released": lambda: Sar(variant="released", lr=0.1, margin=2, recover_below=0),
    "eta": lambda: Eta(lr=0.01, margin=2, redundancy=2),
    "eata": lambda: Eata(lr=0.01, margin=2, redundancy=2, fisher_weight=1),
    "deyo": lambda: DeYO(lr=0.1, margin=2, plpd_above=-2),
    "cotta": lambda: CoTTA(lr=0.01, augment_below=2, views=2, restore=0.1),
    "cotta-released": lambda: CoTTA(variant="released", lr=0.01, augment_below=2, views=2),
    "memo": lambda: Memo(lr=1e-3, views=3),
    "memo-sgd": lambda: Memo(lr=1e-2, optimizer="sgd", views=3),
}
PRE_UPDATE = ("tent", "sar", "eta", "eata", "deyo")

every_method = pytest.mark.parametrize("name", METHODS)
# Every method on every family; variants need one family only.
every_pair = pytest.mark.parametrize(
    ("name", "family"), [(n, f) for n in METHODS for f in FAMILIES if "-" not in n or f == "vit"]
)
every_family = pytest.mark.parametrize("family", FAMILIES)


@cache
def built(family: str) -> Model:
    return FAMILIES[family]().build()


def fresh_model(family: str) -> Model:
    return copy.deepcopy(built(family))


def images(count: int, seed: int) -> Tensor:
    """Smooth random images: noise alone would look the same to every network."""
    rng = torch.Generator().manual_seed(seed)
    return F.interpolate(torch.rand(count, 3, 4, 4, generator=rng), (32, 32), mode="bicubic").clamp(0, 1)


BATCHES = [images(BATCH, seed) for seed in range(3)]
SOURCE = Source(images(BATCH, 9), batch_size=4)


def started(method: GradientMethod, family: str = "vit") -> GradientMethod:
    assert method.unsupported(built(family)) is None
    method.setup(fresh_model(family), SOURCE)
    return method


def stream(name: str) -> list[Tensor]:
    """Three batches; small ones for MEMO, which takes every image on its own."""
    return [x[:2] for x in BATCHES] if "memo" in name else BATCHES


def run(method: GradientMethod, batches: list[Tensor]) -> list[Tensor]:
    with torch.no_grad():
        return [method.step(x) for x in batches]


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(map(torch.equal, left, right))


def values(model: Model) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def batch_statistics_logits(family: str, x: Tensor) -> Tensor:
    model = fresh_model(family)
    model.use_batch_statistics()
    with torch.no_grad():
        return model(x)


# All --------------------------------------------------------------------------------------------


@every_pair
def test_reset_and_replay_are_exact(name: str, family: str) -> None:
    method = started(METHODS[name](), family)
    before = values(method.model)
    rng = torch.get_rng_state()
    first = run(method, stream(name))
    assert torch.equal(rng, torch.get_rng_state())
    assert not same(before, values(method.model))
    assert all(logits.isfinite().all() and not logits.requires_grad for logits in first)
    method.reset()
    if "memo" not in name:
        assert same(before, values(method.model))
    assert same(first, run(method, stream(name)))


@every_pair
def test_a_stream_stops_and_goes_on_exactly(name: str, family: str) -> None:
    method = started(METHODS[name](), family)
    run(method, stream(name)[:1])
    saved = io.BytesIO()
    state = method.state_dict()
    torch.save(state, saved)
    expected = run(method, stream(name)[1:])
    again = io.BytesIO()
    torch.save(state, again)  # what has happened since must not have reached the snapshot
    assert saved.getvalue() == again.getvalue()
    saved.seek(0)
    resumed = started(METHODS[name](), family)
    resumed.load_state_dict(torch.load(saved, weights_only=True))
    assert same(expected, run(resumed, stream(name)[1:]))


@every_method
def test_inference_mode_changes_nothing(name: str) -> None:
    expected = run(started(METHODS[name]()), stream(name))
    method, model = METHODS[name](), fresh_model("vit")
    with torch.inference_mode():
        method.setup(model, SOURCE)
        method.step(BATCHES[1].clone())  # clones made here are inference tensors
        method.load_state_dict(method.state_dict())
        method.reset()
        assert same(expected, [method.step(x.clone()) for x in stream(name)])


@every_pair
def test_a_broken_batch_is_skipped_and_counted(name: str, family: str) -> None:
    method = started(METHODS[name](), family)
    run(method, stream(name)[:1])
    before = values(method.model)
    broken = stream(name)[1].clone()
    broken[0] = torch.nan
    run(method, [broken])
    assert method.skipped_updates == 1
    if "memo" not in name:  # there the batch's other images have had their own updates
        assert same(before, values(method.model))
    assert run(method, stream(name)[2:])[0].isfinite().all()


@every_method
def test_quantised_models_are_refused(name: str) -> None:
    model = fresh_model("vit")
    model.differentiable = False
    assert "gradients" in (METHODS[name]().unsupported(model) or "")


COUNTS = {  # forward, backward images of one batch
    "tent": (1, 1),
    "sar": (2, 2),
    "sar-released": (2, 2),
    "eta": (1, 1),
    "eata": (1, 1),
    "deyo": (2, 1),
    "cotta": (5, 1),
    "cotta-released": (5, 1),
    "memo": (4, 3),
    "memo-sgd": (4, 3),
}


@every_pair
def test_passes_are_counted(name: str, family: str) -> None:
    method = started(METHODS[name](), family)
    start = copy.copy(method.model.passes)
    x = stream(name)[0]
    run(method, [x])
    forwards, backwards = COUNTS[name]
    end = method.model.passes
    assert end.forward_images - start.forward_images == forwards * len(x)
    assert end.backward_images - start.backward_images == backwards * len(x)


def test_published_settings_cost_what_the_papers_say() -> None:
    def passes(method: GradientMethod, x: Tensor) -> Passes:
        started(method)
        run(method, [x])
        return method.model.passes

    one = BATCHES[0][:1]
    assert passes(CoTTA(augment_below=0), one) == Passes(3, 1)
    assert passes(CoTTA(augment_below=2), one) == Passes(35, 1)
    assert passes(Memo(), one) == Passes(65, 64)
    assert passes(Sar(variant="released", margin=0), one) == Passes(1, 0)
    assert passes(Eta(margin=0), one) == Passes(1, 0)
    assert passes(DeYO(margin=0), one) == Passes(1, 0)


@every_family
@pytest.mark.parametrize("name", PRE_UPDATE)
def test_the_first_prediction_is_the_baseline(name: str, family: str) -> None:
    first = run(started(METHODS[name](), family), BATCHES[:1])[0]
    assert torch.equal(first, batch_statistics_logits(family, BATCHES[0]))


@pytest.mark.parametrize("name", ["tent", "sar", "sar-released", "eta", "eata"])
def test_order_within_a_batch_does_not_matter(name: str) -> None:
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    straight = run(started(METHODS[name]()), BATCHES)
    mixed = run(started(METHODS[name]()), [x[order] for x in BATCHES])
    for a, b in zip(straight, mixed, strict=True):
        torch.testing.assert_close(a[order], b, atol=1e-4, rtol=1e-3)


@every_pair
def test_only_the_named_parameters_move(name: str, family: str) -> None:
    method = started(METHODS[name](), family)
    before = {n: p.detach().clone() for n, p in method.model.named_parameters()}
    run(method, stream(name)[:1])
    chosen = {id(p) for p in method.trainable(method.model)}
    for n, p in method.model.named_parameters():
        assert p.requires_grad == (id(p) in chosen)
        assert id(p) in chosen or torch.equal(p, before[n])


@every_pair
def test_presets_are_fields(name: str, family: str) -> None:
    cls = type(METHODS[name]())
    cls(**cls.presets(Target(f"{family}-micro", family, "FP32")))


# SAR --------------------------------------------------------------------------------------------


def test_early_norms_leave_out_the_last_layers() -> None:
    vit = VitB(weights="random").skeleton()
    kept = {norm.name for norm in early_norms(vit)}
    assert sum(p.numel() for p in Sar().trainable(vit)) == 27_648
    assert {"blocks.1.norm1", "blocks.8.norm2"} <= kept
    assert kept.isdisjoint({"blocks.9.norm1", "blocks.10.norm1", "norm"})
    names = [norm.name for norm in built("resnet").norms()]
    assert [n.name for n in early_norms(built("resnet"))] == [n for n in names if "layer4" not in n]
    assert {n.block for n in early_norms(built("vim"))} == {0, 1, 2, 3}


def test_learning_rate_by_batch_size() -> None:
    assert lr_for_batch(1e-3, 64, "vit") == 1e-3
    assert lr_for_batch(1e-3, 16, "vim") == pytest.approx(2.5e-4)
    assert lr_for_batch(1e-3, 1, "vit") == pytest.approx(2e-3 / 64)
    assert lr_for_batch(2.5e-4, 64, "resnet") == lr_for_batch(2.5e-4, 32, "resnet") == 2.5e-4
    assert lr_for_batch(2.5e-4, 16, "resnet") == pytest.approx(1.25e-4)
    assert lr_for_batch(2.5e-4, 1, "resnet") == pytest.approx(4 * 2.5e-4 / 64)
    method = started(Sar(lr=0.064))
    run(method, [BATCHES[0], BATCHES[1][:2]])  # a partial last batch keeps the rate of the first
    assert method.updater.param_groups[0]["lr"] == pytest.approx(0.064 * BATCH / 64)


@pytest.mark.parametrize("variant", ["corrected", "released"])
def test_sar_without_its_parts_is_tent(variant: Any) -> None:
    sar = Sar(variant, lr=0.01 * 64 / BATCH, rho=0, margin=1e9, recover_below=0, norms="all")
    for a, b in zip(run(started(sar), BATCHES), run(started(Tent(lr=0.01)), BATCHES), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@every_family
def test_sar_without_sure_samples_stays(family: str) -> None:
    method = started(Sar(lr=1, margin=0), family)
    before = values(method.model)
    run(method, BATCHES)
    assert same(before, values(method.model))
    assert method.mean_entropy is None  # type: ignore[attr-defined]


def test_sar_looks_at_distance_rho_and_comes_back() -> None:
    method = started(Sar())
    before = [p.detach().clone() for p in method.parameters]
    with torch.enable_grad():
        entropy(method.model(BATCHES[0])).mean().backward()
    with uphill(method.parameters, 0.05):
        gaps = [(p.detach() - old).norm() for p, old in zip(method.parameters, before, strict=True)]
        assert torch.stack(gaps).norm() == pytest.approx(0.05, rel=1e-4)
    assert same(before, [p.detach() for p in method.parameters])


def test_sar_recovers_the_source() -> None:
    method = started(Sar(lr=1, margin=2, recover_below=1e9))
    before = values(method.model)
    first = run(method, BATCHES)
    assert same(before, values(method.model))
    assert method.mean_entropy is None
    assert not method.updater.state_dict()["state"]
    assert method.updater.param_groups[0]["lr"] == 1
    assert torch.equal(first[2], batch_statistics_logits("vit", BATCHES[2]))


def test_released_sar_predicts_with_the_perturbed_model() -> None:
    variants = ("corrected", "released")
    corrected, released = (run(started(Sar(v, margin=2)), BATCHES[:1])[0] for v in variants)
    assert not torch.equal(corrected, released)
    unsure = run(started(Sar("released", margin=0)), BATCHES[:1])[0]
    assert torch.equal(unsure, corrected)


# EATA -------------------------------------------------------------------------------------------


def test_eta_learns_nothing_without_sure_samples() -> None:
    method = started(Eta(lr=1, margin=0))
    before = values(method.model)
    run(method, BATCHES)
    assert same(before, values(method.model))
    assert method.mean_probability is None  # type: ignore[attr-defined]


def test_eta_learns_nothing_from_redundant_samples() -> None:
    method = started(Eta(margin=2, redundancy=0))
    run(method, BATCHES[:1])
    before = values(method.model)
    run(method, BATCHES[1:])
    assert same(before, values(method.model))


def test_eta_weighs_a_sample_at_the_threshold_by_one() -> None:
    assert sample_weight(torch.tensor([0.9, 0.4]), 0.9).tolist() == pytest.approx([1, math.exp(0.5)])


def test_eta_averages_the_kept_probabilities() -> None:
    method = started(Eta(lr=0, margin=2, redundancy=2))
    p0, p1 = (logits.softmax(1).mean(0) for logits in run(method, BATCHES[:2]))
    torch.testing.assert_close(method.mean_probability, 0.9 * p0 + 0.1 * p1)  # type: ignore[attr-defined]


@every_family
def test_eata_without_penalty_is_eta(family: str) -> None:
    eta, eata = Eta(lr=0.01, margin=2, redundancy=2), Eata(0.01, 0.9, 2, 2, fisher_weight=0)
    assert same(run(started(eta, family), BATCHES), run(started(eata, family), BATCHES))


@every_family
def test_eata_penalises_distance_from_the_source(family: str) -> None:
    method = started(Eata(fisher_weight=2000, margin=2, redundancy=2), family)
    assert isinstance(method, Eata)
    assert all((f >= 0).all() for f in method.fisher)
    assert sum(f.sum() for f in method.fisher) > 0
    assert method.penalty() == 0
    run(method, BATCHES[:1])
    assert method.penalty() > 0


def test_fisher_is_the_mean_of_squared_batch_gradients() -> None:
    method = started(Eata(fisher_images=5))  # of six: a batch of four and a partial one
    assert isinstance(method, Eata)
    expected = torch.zeros_like(method.fisher[0])
    for x in (SOURCE.images[:4], SOURCE.images[4:5]):
        logits = method.model(x)
        loss = F.nll_loss(logits.log_softmax(1), logits.argmax(1))
        expected += torch.autograd.grad(loss, method.parameters[0])[0] ** 2 / 2
    torch.testing.assert_close(method.fisher[0], expected)


# DeYO -------------------------------------------------------------------------------------------


def test_deyo_without_shuffling_sees_no_drop() -> None:
    method = started(DeYO(lr=1, margin=2, tiles=1))
    before = values(method.model)
    run(method, BATCHES)
    assert same(before, values(method.model))


def test_deyo_without_its_parts_is_tent_on_early_norms() -> None:
    deyo = DeYO(lr=0.1, margin=1e9, plpd_above=-1e9, reweight=False)
    tent = Tent(lr=0.1 * BATCH / 64)
    tent.trainable = deyo.trainable  # type: ignore[method-assign]
    for a, b in zip(run(started(deyo), BATCHES), run(started(tent), BATCHES), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("side", [32, 224])
def test_tiles_move_and_no_pixel_is_lost(side: int) -> None:
    x = torch.rand(3, 3, side, side, generator=torch.Generator().manual_seed(0))
    shuffled = shuffle_tiles(x, 4, torch.Generator().manual_seed(1))
    assert torch.equal(shuffled.flatten(2).sort().values, x.flatten(2).sort().values)
    corner = x[0, :, : side // 4, : side // 4].sum()
    tiles = F.avg_pool2d(shuffled, side // 4).sum(1)[0] * (side // 4) ** 2
    assert torch.isclose(tiles, corner, rtol=1e-4).any()
    assert not torch.equal(shuffled, x)
    assert shuffle_tiles(x[:, :, :31, :31], 4, torch.Generator()).shape == (3, 3, 31, 31)


def test_deyo_weighs_by_entropy_and_drop() -> None:
    method = started(DeYO())
    assert isinstance(method, DeYO)
    h = torch.tensor([0.4 * math.log(10)])
    assert method.sample_weight(h, torch.tensor([0.5])).item() == pytest.approx(1 + math.exp(0.5))


# CoTTA ------------------------------------------------------------------------------------------


@every_family
def test_cotta_with_a_still_teacher_predicts_the_source(family: str) -> None:
    method = started(CoTTA(lr=0.1, teacher_momentum=1, augment_below=0), family)
    for x, logits in zip(BATCHES, run(method, BATCHES), strict=True):
        assert torch.equal(logits, batch_statistics_logits(family, x))


def test_cotta_restores_all_or_none_or_some() -> None:
    def moved(restore: float) -> float:
        method = started(CoTTA(lr=0.1, restore=restore))
        before = torch.cat([p.detach().flatten() for p in method.parameters])
        run(method, BATCHES[:1])
        after = torch.cat([p.detach().flatten() for p in method.parameters])
        return (before != after).double().mean().item()

    assert moved(1) == 0
    assert moved(0.3) == pytest.approx(0.7 * moved(0), rel=0.02)


@every_family
def test_cotta_without_learning_keeps_everything(family: str) -> None:
    method = started(CoTTA(lr=0), family)
    assert isinstance(method, CoTTA)
    before = values(method.model)
    run(method, BATCHES[:2])
    assert same(before, values(method.model))
    assert same(before, values(method.teacher))


def test_cotta_teacher_follows_the_student() -> None:
    method = started(CoTTA(lr=0.1, teacher_momentum=0.9, restore=0))
    assert isinstance(method, CoTTA)
    source = values(method.model)
    run(method, BATCHES[:1])
    for s, t, now in zip(source, values(method.teacher), values(method.model), strict=True):
        torch.testing.assert_close(t, 0.9 * s + 0.1 * now)
    assert same(source, values(method.anchor))


def test_cotta_loss_is_symmetric() -> None:
    a, b = torch.randn(2, 4, 10, generator=torch.Generator().manual_seed(0))
    loss = symmetric_cross_entropy(a, b)
    torch.testing.assert_close(loss, symmetric_cross_entropy(b, a))
    torch.testing.assert_close(symmetric_cross_entropy(a, a), entropy(a))


def test_jitter_is_seeded_and_stays_an_image() -> None:
    for x in (BATCHES[0], torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))):
        view = jitter(x, 1)
        assert view.shape == x.shape
        assert view.min() >= 0
        assert view.max() <= 1
        assert torch.equal(view, jitter(x, 1))
        assert not torch.equal(view, jitter(x, 2))
        assert (view - x).abs().mean() < 0.4
    assert jitter(torch.full((1, 3, 32, 32), torch.nan), 0).isnan().any()


def test_hue_and_blur_at_rest_change_nothing() -> None:
    x = BATCHES[0]
    torch.testing.assert_close(hue(x, 0.0), x)
    torch.testing.assert_close(hue(x, 1 / 3), x.roll(1, 1))
    inner = x[..., BLUR_REACH:-BLUR_REACH, BLUR_REACH:-BLUR_REACH]
    torch.testing.assert_close(blur(x, 0.001), inner)


# MEMO -------------------------------------------------------------------------------------------


def test_memo_on_identity_views_has_tents_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tta_bench_methods.memo.make_views", lambda image, _: image.expand(4, -1, -1, -1))
    one = BATCHES[0][:1]
    memo, tent = started(Memo(lr=0.1, optimizer="sgd", weight_decay=0)), started(Tent(lr=0))
    torch.testing.assert_close(
        marginal_entropy(memo.model(one.expand(4, -1, -1, -1))), entropy(memo.model(one))[0]
    )
    output, source = run(memo, [one])[0], run(tent, [one])[0]
    assert not torch.equal(output, source)
    for a, b in zip(memo.model.norms(), tent.model.norms(), strict=True):
        torch.testing.assert_close(a.module.weight.grad, b.module.weight.grad, atol=1e-5, rtol=1e-3)


@every_family
def test_memo_without_learning_is_the_source_with_prior_statistics(family: str) -> None:
    model = fresh_model(family)
    if model.batch_norms():
        BnAdapt("alpha", alpha=1 / 17).setup(model, SOURCE)
    logits = run(started(Memo(lr=0, views=2), family), [BATCHES[0][:2]])[0]
    with torch.no_grad():
        assert torch.equal(logits, torch.cat([model(x) for x in BATCHES[0][:2].split(1)]))


@every_family
def test_memo_treats_images_on_their_own(family: str) -> None:
    method = started(METHODS["memo"](), family)
    x = BATCHES[0][:3]
    assert torch.equal(run(method, [x])[0].flip(0), run(method, [x.flip(0)])[0])
    assert torch.equal(run(method, [x])[0], torch.cat(run(method, list(x.split(1)))))


def test_views_are_seeded_and_stay_images() -> None:
    for side in (32, 224):
        image = images(1, 0) if side == 32 else F.interpolate(images(1, 0), (side, side))
        views = make_views(image, draw_recipe(16, 1))
        assert views.shape == (16, 3, side, side)
        assert views.min() >= 0
        assert views.max() <= 1 + 1e-6
        assert torch.equal(views, make_views(image, draw_recipe(16, 1)))
        assert not torch.equal(views, make_views(image, draw_recipe(16, 2)))
    assert make_views(torch.full((1, 3, 32, 32), torch.nan), draw_recipe(64, 0)).isnan().all()


def test_recipes_draw_what_augmix_says() -> None:
    recipe = draw_recipe(200, 0)
    depths = [sum(len(jobs) for jobs in link.values()) for link in recipe.links]
    assert depths[0] == 600
    assert depths[1] == pytest.approx(400, abs=50)
    assert depths[2] == pytest.approx(200, abs=50)
    assert all(sum(w) == pytest.approx(1) for w in recipe.chain_weights)
    strengths = [abs(s) for link in recipe.links for jobs in link.values() for _, s in jobs]
    assert min(strengths) >= 0.01
    assert max(strengths) <= 0.1
    areas = [abs(a) * e for (a, _, _), (_, e, _) in recipe.crops]
    assert min(areas) >= 0.08
    assert max(areas) <= 1 + 1e-9


# Shared -----------------------------------------------------------------------------------------


def test_mean_over_nothing_is_zero_with_a_zero_gradient() -> None:
    rows = torch.randn(4, requires_grad=True)
    mean_over(rows, torch.zeros(4, dtype=torch.bool)).backward()
    torch.testing.assert_close(rows.grad, torch.zeros(4), atol=0, rtol=0)
    torch.testing.assert_close(mean_over(rows, rows > -9), rows.mean())
