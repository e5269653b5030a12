"""Spreads, paired differences, ranks: by hand, by simulation, and as every table shows them."""

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
from scipy.stats import norm
from scipy.stats import t as student

from tests.report_results import DEMO, write
from tests.test_layouts import cell
from tta_bench.corruptions.sets import IMAGENET_C_15
from tta_bench.render import render
from tta_bench.report import gather
from tta_bench.statistics import FEWEST_UNITS, LEVEL, RESAMPLES, Difference, Rank, compare, ranks, spread
from tta_bench.table import Entry, Row, Table, build

# -- by hand ----------------------------------------------------------------------------------------


def test_spread_of_three_seeds() -> None:
    found = spread([50.0, 51.0, 52.0])
    assert (found.mean, found.std) == (51.0, 1.0)
    assert found.half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert spread([50.0]) == (50.0, None, None)


def test_few_units_are_compared_by_students_t() -> None:
    ours = np.array([[50.0, 62.0, 71.0, 83.0]])
    found = compare(ours, ours - [[1.0, 2.0, 3.0, 4.0]])
    assert found is not None
    half = 3.182446 * (5 / 3) ** 0.5 / 2  # t of 3 degrees of freedom, differences 1, 2, 3, 4
    assert found.value == 2.5
    assert (found.low, found.high) == pytest.approx((2.5 - half, 2.5 + half), rel=1e-5)
    assert found.p == pytest.approx(0.0305, abs=1e-4)
    assert not found.tie


def test_seeds_are_the_units_of_a_single_domain() -> None:
    ours = np.array([[50.0], [51.0], [53.0]])
    found = compare(ours, ours - [[1.0], [2.0], [3.0]])
    assert found is not None
    assert found.low == pytest.approx(2 - 4.302653 / 3**0.5, rel=1e-5)
    assert found.tie


def test_a_single_pair_tells_nothing() -> None:
    assert compare(np.array([[50.0]]), np.array([[40.0]])) is None


def test_a_constant_difference_is_certain_and_none_is_a_tie() -> None:
    ours = np.linspace(40, 60, 30).reshape(2, 15)
    certain, none = compare(ours, ours - 0.5), compare(ours, ours)
    assert certain is not None
    assert none is not None
    assert (certain.low, certain.high) == pytest.approx((0.5, 0.5))
    assert certain.p < 0.01  # what 10 000 resamples can tell
    assert (none.low, none.high, none.p) == (0.0, 0.0, 1.0)
    assert none.tie


def test_what_both_share_does_not_blur_their_difference() -> None:
    domains = np.linspace(10, 90, 15)[None]
    noise = np.random.default_rng(0).normal(0, 0.2, (2, 1, 15))
    found = compare(domains + 0.5 + noise[0], domains + noise[1])
    assert found is not None
    assert not found.tie


def test_differences_turn_round_with_their_sides() -> None:
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(50, 2, (2, 3, 15))
    there, back = compare(ours, theirs), compare(theirs, ours)
    assert there is not None
    assert back is not None
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low), abs=1e-9)
    assert there.p == pytest.approx(back.p)


def test_comparisons_are_deterministic() -> None:
    ours, theirs = np.random.default_rng(2).normal(50, 2, (2, 3, 15))
    assert compare(ours, theirs) == compare(ours.copy(), theirs.copy())


# -- by simulation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seeds", "domains", "domain", "seed"),
    [
        (1, 15, 1.0, 0.0),
        (3, 15, 1.0, 0.3),
        (5, 15, 1.0, 0.3),
        (1, 4, 1.0, 0.0),
        (3, 4, 1.0, 0.0),
        (3, 1, 0, 0.0),
    ],
)
def test_intervals_cover_the_truth(seeds: int, domains: int, domain: float, seed: float) -> None:
    """Of 95 % intervals over simulated grids, about as many (never many fewer) hold the true difference."""
    rng, truth, times = np.random.default_rng(7), 0.7, 400
    covered = 0
    for _ in range(times):
        effects = domain * rng.normal(size=(1, domains)) + seed * rng.normal(size=(seeds, 1))
        found = compare(truth + effects + 0.5 * rng.normal(size=(seeds, domains)), np.zeros((seeds, domains)))
        assert found is not None
        covered += found.low <= truth <= found.high
    assert 0.92 <= covered / times <= 0.99  # the standard error of 400 trials is 0.011


@pytest.mark.parametrize("shape", [(1, 15), (3, 15), (2, FEWEST_UNITS - 1)])
def test_the_p_value_says_what_the_interval_says(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        found = compare(rng.normal(0.4, 1, shape), np.zeros(shape))
        assert found is not None
        assert found.tie == (found.p > 0.05) or abs(found.p - 0.05) < 0.002


# -- ranks ------------------------------------------------------------------------------------------


def test_what_is_tied_with_the_best_shares_its_rank() -> None:
    noise = np.random.default_rng(4).normal(0, 1, (4, 1, 15))
    means = [60.0, 50.0, 60.1, 40.0]
    found = ranks([mean + n for mean, n in zip(means, noise, strict=True)], ["60.0", "50.0", "60.1", "40.0"])
    assert [str(rank) for rank in found] == ["1=", "3", "1=", "4"]


def test_equal_as_printed_is_equal_and_single_numbers_are_told_apart() -> None:
    scores = [np.array([[value]]) for value in (60.04, 60.01, 60.3)]
    assert ranks(scores, ["60.0", "60.0", "60.3"]) == [Rank(2, True), Rank(2, True), Rank(1, False)]


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


def _entries(table: Table, key: str) -> dict[str, Entry]:
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
    once = compare(*(np.array(values).reshape(2, 15) for values in pair))
    assert once is not None
    found = _entries(build(flat, "pairs"), "minus B")["A"]
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


def test_one_seed_and_one_domain_still_make_a_table(frame: pd.DataFrame) -> None:
    single = frame[(frame.seed == 1) & (frame.corruption == "fog")]
    table = build(single, "pairs")
    entry = _entries(table, "minus B")["A"]
    assert entry.value is not None
    assert entry.p is None
    assert {e.rank for e in _entries(table, "accuracy").values()} == {"1", "2", "3"}


def test_the_page_has_the_ranks_of_the_tables(tmp_path: Path) -> None:
    from tta_bench import frame as frames

    store = write(DEMO, tmp_path)
    packed = gather([store])["streams"][0]["tables"]["cost"]["3"]
    table = build(frames.load(store), "cost", round=3)
    index = [column["key"] for column in packed["columns"]].index("accuracy")
    rows: list[Row] = [row for group in table.groups for row in group.rows]
    expected = [(row.entries[index].rank, row.entries[index].best) for row in rows]
    shown = [row["entries"][index] for row in packed["rows"]]
    assert [(entry.get("rank", ""), entry.get("best", False)) for entry in shown] == expected
    assert any(rank == "1=" for rank, _ in expected)


# -- at the boundaries ------------------------------------------------------------------------------


def _compared(differences: np.ndarray) -> Difference:
    found = compare(differences, np.zeros(differences.shape))
    assert found is not None
    return found


def test_the_bootstrap_is_used_where_equal_signs_are_no_chance() -> None:
    assert 2 / 2**FEWEST_UNITS < LEVEL <= 2 / 2 ** (FEWEST_UNITS - 1)
    skewed = _compared(np.array([[0.0] * (FEWEST_UNITS - 1) + [6.0]]))
    assert skewed.high - skewed.value > 1.2 * (skewed.value - skewed.low), "Student's t would be symmetric"


def test_two_units_have_an_interval() -> None:
    found = _compared(np.array([[1.0, 2.0]]))
    assert (found.low, found.high) == pytest.approx((1.5 - 12.7062 / 2, 1.5 + 12.7062 / 2), rel=1e-5)


def test_domains_are_the_units_where_there_are_as_many_seeds() -> None:
    found = _compared(np.array([[1.0, 2.0, 3.0]] * 3))
    assert found.low == pytest.approx(2 - 4.302653 / 3**0.5, rel=1e-5)
    assert _compared(np.array([[1.0, 2.0, 3.0]] * 3).T).low == pytest.approx(2.0)


def test_few_units_without_spread_are_certain() -> None:
    assert _compared(np.full((1, 4), 0.5)) == (0.5, 0.5, 0.5, 0.0)
    assert _compared(np.zeros((1, 4))) == (0.0, 0.0, 0.0, 1.0)


def test_the_smallest_p_value_is_that_of_one_resample_in_all() -> None:
    found = _compared(np.full((2, 15), 0.5))
    beyond = norm.ppf(1 / (RESAMPLES + 1))
    assert found.p == pytest.approx(2 * student.cdf(beyond * (14 / 15) ** 0.5, df=14), rel=1e-9)


def test_intervals_in_print_do_not_change() -> None:
    """Other resamples would give other digits, also in tables that are published."""
    found = _compared(np.outer([1.0, 2.0, 4.0], np.sqrt(np.arange(15)) - 1.8))
    assert found == pytest.approx((1.49274428, 0.0170769085, 3.51997526, 0.0489142185), rel=1e-6)
