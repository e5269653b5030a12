"""Intervals, paired differences, ranks: by hand, by simulation, and as every table shows them."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from tests.helpers.report_results import DEMO, write
from tests.tables.test_layouts import cell
from tools.coverage import SETTINGS, OneSeed, Seeds, coverage
from tta_bench.corruptions.sets import IMAGENET_C_15
from tta_bench.report import gather
from tta_bench.tables.build import build
from tta_bench.tables.render import render
from tta_bench.tables.statistics import (
    FEWEST_BATCHES,
    FEWEST_IMAGES,
    FEWEST_SCORES,
    Batches,
    Difference,
    Estimate,
    Evidence,
    Rank,
    VarianceComponent,
    compare,
    deviation,
    estimate,
    holm,
    ranks,
)
from tta_bench.tables.table import Row, Table, TableEntry

# -- by hand ----------------------------------------------------------------------------------------


def grid(scores: object, images: int = 10_000) -> Evidence:
    """Scores [seeds, domains] of enough images."""
    return Evidence(np.atleast_2d(np.asarray(scores, float)), images)


def one_seed(hits: list[list[int]], size: int = 64) -> Evidence:
    """Hits by domain and batch of one seed."""
    sizes = [np.full(len(domain), size) for domain in hits]
    batches = tuple(Batches(np.array([h], float), n) for h, n in zip(hits, sizes, strict=True))
    shares = [100 * sum(h) / n.sum() for h, n in zip(hits, sizes, strict=True)]
    return Evidence(np.array([shares]), int(sum(map(np.sum, sizes))), batches)


def _compared(scores: object) -> Difference:
    found = grid(scores)
    difference = compare(found, grid(np.zeros(found.scores.shape)))
    assert difference is not None
    return difference


def test_deviation_of_seeds() -> None:
    assert deviation([50.0, 51.0, 52.0]) == 1.0
    assert deviation([49.0, 51.0]) == pytest.approx(2**0.5)
    assert deviation([50.0]) is None


@pytest.mark.parametrize(("count", "t"), [(2, 12.7062), (5, 2.77645), (30, 2.04523)])
def test_seeds_of_one_domain_have_students_interval(count: int, t: float) -> None:
    scores = np.linspace(-1, 1, count)[:, None]
    found = estimate(grid(scores))
    assert found is not None
    assert found.half == pytest.approx(t * scores.std(ddof=1) / count**0.5, rel=1e-4)


def test_the_two_way_interval_by_hand() -> None:
    """Three seeds × four domains: mean squares, Satterthwaite's and Cochran's critical values."""
    scores = np.array([[1.0, 2, 3, 5], [2, 2, 4, 7], [0, 2, 2, 3]])
    seeds, domains, mean = scores.mean(axis=1), scores.mean(axis=0), scores.mean()
    by_seed, by_domain = 4 * seeds.var(ddof=1), 3 * domains.var(ddof=1)
    rest = ((scores - seeds[:, None] - domains + mean) ** 2).sum() / 6
    parts = np.array([by_seed, by_domain - rest]) / 12
    freedom = parts.sum() ** 2 / (parts**2 / [2, 3]).sum()
    cochran = (parts * student.ppf(0.975, [2, 3])).sum() / parts.sum()
    critical = cochran / 3 + 2 / 3 * student.ppf(0.975, freedom)
    found = estimate(grid(scores))
    assert found is not None
    assert found.half == pytest.approx(critical * parts.sum() ** 0.5, rel=1e-9)
    turned = estimate(grid(scores.T))
    assert turned is not None
    assert turned.half == pytest.approx(found.half), "seeds and domains are alike"


def test_of_as_many_seeds_as_domains_seeds_keep_their_mean_square() -> None:
    scores = np.array([[1.0, 2, 3], [2, 2, 4], [0, 5, 2]])
    seeds, domains, mean = scores.mean(axis=1), scores.mean(axis=0), scores.mean()
    rest = ((scores - seeds[:, None] - domains + mean) ** 2).sum() / 4
    by_seed, by_domain = 3 * seeds.var(ddof=1), 3 * domains.var(ddof=1)
    assert by_seed < rest < by_domain
    found = estimate(grid(scores))
    assert found is not None
    assert [each.variance for each in found.components] == pytest.approx(
        [by_seed / 9, (by_domain - rest) / 9]
    )


def test_without_cochrans_weight_the_critical_value_is_satterthwaites() -> None:
    parts = (VarianceComponent(1.0, 2), VarianceComponent(2.0, 5))
    freedom = 9 / (1 / 2 + 4 / 5)
    assert Estimate(1.0, parts).critical(0.05) == pytest.approx(student.ppf(0.975, freedom))
    assert Estimate(1.0, ()).critical(0.05) == 0.0, "without variance an interval has no width"


def test_p_values_have_a_smallest_value() -> None:
    """Below e⁻⁴⁰ the bisection does not look."""
    certain = Estimate(1000.0, (VarianceComponent(1.0, 1000),))
    assert certain.p == pytest.approx(np.exp(-40), rel=1e-9, abs=0)
    assert Estimate(0.0, certain.components).p == pytest.approx(1.0)


def test_one_varying_domain_of_two_batches_has_one_degree_of_freedom() -> None:
    found = estimate(one_seed([[30, 34], [40, 40], [50, 50], [20, 20]]))
    assert found is not None
    assert found.critical(0.05) == pytest.approx(student.ppf(0.975, 1))


def test_the_batches_of_one_seed_by_hand() -> None:
    hits = [[30, 34, 29, 31], [50, 55, 48, 51]]
    variances = [np.var(h, ddof=1) / 4 * (100 / 64) ** 2 for h in hits]
    freedom = sum(variances) ** 2 / sum(v**2 / 5 for v in variances) - 2
    found = estimate(one_seed(hits))
    assert found is not None
    assert found.value == pytest.approx(100 * sum(map(sum, hits)) / 512)
    assert found.half == pytest.approx(student.ppf(0.975, freedom) * sum(variances) ** 0.5 / 2, rel=1e-9)


def test_what_both_share_does_not_blur_the_difference_of_one_seed() -> None:
    """Batches differ by 20 points, methods by one image in each."""
    hits = [[20, 40, 25, 33, 47, 28, 36, 22]]
    ours = one_seed([[h + 1 + (i % 2) for i, h in enumerate(hits[0])]])
    found = compare(ours, one_seed(hits))
    assert found is not None
    assert not found.tie
    assert found.high - found.low < 2
    alone = estimate(one_seed(hits))
    assert alone is not None
    assert alone.half > 5


def test_a_constant_difference_is_certain_and_none_is_a_tie() -> None:
    certain, none = _compared(np.full((2, 15), 0.5)), _compared(np.zeros((2, 15)))
    assert certain == (0.5, 0.5, 0.5, 0.0)
    assert none == (0.0, 0.0, 0.0, 1.0)
    assert none.tie


def test_differences_turn_round_with_their_sides() -> None:
    ours, theirs = map(grid, np.random.default_rng(1).normal(50, 2, (2, 3, 15)))
    there, back = compare(ours, theirs), compare(theirs, ours)
    assert there is not None
    assert back is not None
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low), abs=1e-9)
    assert there.p == pytest.approx(back.p)


def test_rounds_with_other_batches_are_not_independent() -> None:
    """The same images in two orders say no more than one order does."""
    once = one_seed([[30, 34, 29, 31, 28, 33, 35, 27]])
    assert once.batches is not None
    turns = (
        Batches(np.vstack([once.batches[0].hits, once.batches[0].hits[:, ::-1]]), once.batches[0].sizes),
    )
    first, both = estimate(once), estimate(Evidence(once.scores, once.images, turns))
    assert first is not None
    assert both is not None
    assert both.half == pytest.approx(first.half)


# -- too little data --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "little",
    [
        one_seed([[10, 12, 9, 11]], size=16),  # one domain, one seed, 64 images
        one_seed([[40] * (FEWEST_BATCHES - 1)]),
        one_seed([[40]] * 15),  # a single batch in each domain
        one_seed([[40], [40, 41] * FEWEST_BATCHES]),  # a single batch in one domain
        grid([[60.0] * 15]),  # batches unknown
        grid(np.eye(2)),
        grid(np.arange(8).reshape(2, 4)),
        grid(np.eye(3), images=FEWEST_IMAGES - 1),
    ],
)
def test_little_evidence_has_no_interval_and_no_rank(little: Evidence) -> None:
    assert estimate(little) is None
    lower = Evidence(little.scores - 20, little.images, little.batches)
    assert compare(little, lower) is None
    assert ranks([little, lower], ["60.0", "40.0"]) is None


def test_the_side_with_fewer_images_counts() -> None:
    scores = np.arange(30).reshape(2, 15)
    assert compare(grid(scores), grid(scores, images=FEWEST_IMAGES - 1)) is None
    assert compare(grid(scores, images=FEWEST_IMAGES - 1), grid(scores)) is None


def _with(evidence: Evidence, last: Batches | None) -> Evidence:
    """The evidence with other batches in its last domain; None removes all batches."""
    assert evidence.batches is not None
    batches = None if last is None else (*evidence.batches[:-1], last)
    return Evidence(evidence.scores, evidence.images, batches)


@pytest.mark.parametrize(
    "last",
    [
        None,  # batches unknown
        Batches(np.full((1, 10), 40.0), np.full(10, 64)),  # more of them
        Batches(np.full((2, 8), 40.0), np.full(8, 64)),  # rounds with other batches
        Batches(np.full((1, 8), 40.0), np.array([64] * 7 + [32])),  # another size
    ],
)
def test_other_batches_are_no_pairs(last: Batches | None) -> None:
    ours = one_seed([[40, 41, 43, 40, 38, 41, 42, 39]] * 2)
    theirs = _with(ours, last)
    assert compare(ours, ours) is not None
    assert compare(ours, theirs) is None
    assert compare(theirs, ours) is None


def test_other_seeds_or_domains_are_no_pairs() -> None:
    scores = np.arange(45.0).reshape(3, 15)
    assert compare(grid(scores), grid(scores[:, :5])) is None
    assert compare(grid(scores), grid(scores[:1])) is None


def test_the_least_evidence_that_counts() -> None:
    assert FEWEST_IMAGES == 256
    assert estimate(grid(np.eye(3), images=FEWEST_IMAGES)) is not None
    assert estimate(grid(np.arange(10).reshape(2, 5))) is not None
    assert FEWEST_SCORES == 9
    assert estimate(one_seed([[40, 41] * (FEWEST_BATCHES // 2)])) is not None


# -- by simulation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_intervals_cover_the_truth(setting: Seeds | OneSeed) -> None:
    """About 95 of 100; `tools/coverage.py` draws more grids. The standard error of 600 grids is 0.9 %."""
    assert 0.915 <= coverage(setting, 600, seed=7) <= 0.985


@pytest.mark.parametrize("shape", [(3, 15), (2, 5), (5, 4), (7, 1)])
def test_the_p_value_says_what_the_interval_says(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        found = _compared(rng.normal(0.4, 1, shape))
        assert found.tie == (found.p > 0.05)


# -- ranks ------------------------------------------------------------------------------------------


def test_what_is_tied_with_the_best_shares_its_rank() -> None:
    noise = np.random.default_rng(4).normal(0, 1, (4, 3, 15))
    means = [60.0, 50.0, 60.1, 40.0]
    rows = [grid(mean + n) for mean, n in zip(means, noise, strict=True)]
    found = ranks(rows, ["60.0", "50.0", "60.1", "40.0"])
    assert found is not None
    assert [str(rank) for rank in found] == ["1=", "3", "1=", "4"]


def test_ranks_never_improve_as_the_mean_falls() -> None:
    """A noisy row far below cannot be told from the best, and a steady one between them can."""
    rng = np.random.default_rng(5)
    domains = np.linspace(-20, 20, 15)
    best, steady = (mean + domains + rng.normal(0, 0.2, (2, 15)) for mean in (63.7, 60.0))
    noisy = 50.0 + domains[::-1] * 2 + rng.normal(0, 0.2, (2, 15))
    rows = list(map(grid, (best, noisy, steady)))
    difference = compare(rows[0], rows[1])
    assert difference is not None
    assert difference.tie
    assert ranks(rows, ["63.7", "50.0", "60.0"]) == [Rank(1, False), Rank(2, True), Rank(2, True)]


def test_equal_as_printed_is_equal() -> None:
    scores = np.random.default_rng(6).normal(60, 1, (3, 15))
    rows = [grid(scores + shift) for shift in (0.04, 0.01, 0.3)]
    assert ranks(rows, ["60.0", "60.0", "60.3"]) == [Rank(2, True), Rank(2, True), Rank(1, False)]


def test_holms_correction() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


# -- in tables --------------------------------------------------------------------------------------

MEANS = {"A": 60.0, "B": 59.9, "C": 50.0}
EXPECTED = {"A": "1=", "B": "1=", "C": "3"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Fifteen domains, two seeds; A and B are tied, though not as printed."""
    rng = np.random.default_rng(5)
    parts = []
    for order, (method, mean) in enumerate(MEANS.items()):
        for seed in (1, 2):
            rows = pd.concat(
                [
                    cell(method, mean + rng.normal(), seed=seed, key=f"{method}{seed}", method_order=order)
                    .query("corruption == 'fog'")
                    .assign(corruption=name, domain_order=i)
                    for i, name in enumerate(IMAGENET_C_15)
                ]
            )
            parts.append(rows)
    return pd.concat(parts)


def _entries(table: Table, key: str) -> dict[str, TableEntry]:
    index = [column.key for column in table.columns].index(key)
    return {row.label: row.entries[index] for group in table.groups for row in group.rows}


@pytest.mark.parametrize(
    ("layout", "key"), [("cost", "accuracy"), ("long-term", "average"), ("pairs", "accuracy")]
)
def test_ties_are_ties_in_every_layout(frame: pd.DataFrame, layout: str, key: str) -> None:
    table = build(frame, layout)
    found = _entries(table, key)
    assert {label: entry.rank for label, entry in found.items()} == EXPECTED
    assert [label for label, entry in found.items() if entry.best] == ["A", "B"]
    assert {label: entry.rank for label, entry in _entries(table, "rank").items()} == EXPECTED


def test_rounds_are_no_further_units(frame: pd.DataFrame) -> None:
    """The same numbers in every round say no more than one round does."""
    flat = frame.assign(accuracy=frame.groupby(["key", "corruption"]).accuracy.transform("first"))
    pair = [[r.accuracy for r in flat[(flat.method == m) & (flat["round"] == 1)].itertuples()] for m in "AB"]
    once = compare(*(grid(np.array(values).reshape(2, 15)) for values in pair))
    assert once is not None
    found = _entries(build(flat[flat.method != "C"], "pairs"), "minus B")["A"]
    assert (found.low, found.high, found.p) == pytest.approx((once.low, once.high, once.p))
    assert _entries(build(flat, "long-term"), "average")["B"].rank == "1="


def test_ties_are_shown_in_every_format(frame: pd.DataFrame) -> None:
    table = build(frame, "cost")
    a, b, c = (f"{_entries(table, 'accuracy')[label].value:.1f}" for label in MEANS)
    assert a != b
    text, markdown, latex = (render(table, format) for format in ("text", "markdown", "latex"))
    assert f"*{a} ±" in text
    assert f"*{b} ±" in text
    assert f"*{c} ±" not in text
    assert [f"**{value}**" in markdown for value in (a, b, c)] == [True, True, False]
    assert [f"\\textbf{{{value}}}" in latex for value in (a, b, c)] == [True, True, False]
    strong = [item.text for item in ElementTree.fromstring(render(table, "html")).iter("strong")]
    assert strong == [a, b]
    ranked = [row["rank"] for row in csv.DictReader(io.StringIO(render(table, "csv")))]
    assert ranked == list(EXPECTED.values())
    stated = json.loads(render(table, "json"))["groups"][0]["rows"]
    assert [row["entries"]["accuracy"]["rank"] for row in stated] == ranked
    assert [row["entries"]["accuracy"]["best"] for row in stated] == [True, True, False]
    for shown in (text, markdown, latex):
        assert re.search(r"1=", shown)


def test_a_pair_says_the_same_in_every_format(frame: pd.DataFrame) -> None:
    table = build(frame, "pairs")
    found = _entries(table, "minus C")["A"]
    record = next(csv.DictReader(io.StringIO(render(table, "csv"))))
    stated = json.loads(render(table, "json"))["groups"][0]["rows"][0]["entries"]["minus C"]
    for name, suffix in {"value": "", "low": "_low", "high": "_high", "p": "_p"}.items():
        expected = pytest.approx(getattr(found, name), abs=1e-4)
        assert float(record[f"minus C{suffix}"]) == expected
        assert stated[name] == expected
    shown = f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}] p={found.p:.3f}"
    assert shown in render(table, "text")
    assert _entries(table, "minus C")["C"].value is None  # against itself


def test_pairs_are_corrected_for_their_number(frame: pd.DataFrame) -> None:
    table = build(frame, "pairs")
    alone = {
        (a, b): _entries(build(frame[frame.method.isin([a, b])], "pairs"), f"minus {b}")[a].p
        for a, b in (("A", "B"), ("A", "C"), ("B", "C"))
    }
    corrected = holm([p for p in alone.values() if p is not None])
    found = [_entries(table, f"minus {b}")[a].p for a, b in alone]
    assert found == pytest.approx(corrected, rel=1e-6)
    assert _entries(table, "minus A")["B"].p == found[0], "the same pair, turned round"
    assert any("(Holm)" in note for note in table.notes)


def test_one_seed_and_one_domain_are_too_little_for_a_verdict(frame: pd.DataFrame) -> None:
    single = frame[(frame.seed == 1) & (frame.corruption == "fog")]
    table = build(single, "pairs")
    entry = _entries(table, "minus B")["A"]
    assert entry.value is not None
    assert entry.p is None
    assert {e.rank for e in _entries(table, "accuracy").values()} == {""}
    assert not any(e.best for e in _entries(table, "accuracy").values())
    assert any("too little data" in note for note in table.notes)


def test_one_seed_is_compared_by_its_batches(frame: pd.DataFrame) -> None:
    """Two domains of ten batches: a steady difference of one image in each shows, with an interval."""
    two = frame[(frame.seed == 1) & frame.corruption.isin(["fog", "snow"]) & (frame["round"] == 3)]
    levels = {"A": 40, "B": 39, "C": 30}
    hits = [[levels[m] + i % 3 + (m == "A") * (i % 2) for i in range(10)] for m in two.method]
    told = two.assign(
        correct_per_batch=pd.Series(hits, two.index), accuracy=[100 * sum(h) / 640 for h in hits]
    )
    table = build(told, "cost")
    found = _entries(table, "accuracy")
    assert {label: entry.rank for label, entry in found.items()} == {"A": "1", "B": "2", "C": "3"}
    assert all(entry.interval for entry in found.values())
    assert any("other images of the same domains" in note for note in table.notes)


def test_the_page_has_the_ranks_of_the_tables(tmp_path: Path) -> None:
    from tta_bench.tables import frame as frames

    store = write(DEMO, tmp_path)
    packed = gather([store])["streams"][0]["tables"]["cost"]["3"]
    table = build(frames.load(store), "cost", round=3)
    index = [column["key"] for column in packed["columns"]].index("accuracy")
    rows: list[Row] = [row for group in table.groups for row in group.rows]
    expected = [(row.entries[index].rank, row.entries[index].best) for row in rows]
    shown = [row["entries"][index] for row in packed["rows"]]
    assert [(entry.get("rank", ""), entry.get("best", False)) for entry in shown] == expected
    assert any(rank == "1=" for rank, _ in expected)
