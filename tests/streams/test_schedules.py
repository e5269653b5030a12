"""Which domains come when: gradual severities, CoTTA's orders, and the path between two corruptions."""

from __future__ import annotations

import pytest

from tta_bench.corruptions.sets import HELD_OUT_4, IMAGENET_C_15
from tta_bench.streams.schedules.cotta_orders import (
    COTTA_ORDERS,
    cotta_places,
    cotta_problem,
    distinct_orders,
)
from tta_bench.streams.schedules.crossfade import crossfade
from tta_bench.streams.schedules.severities import rise_and_fall


def test_severities_rise_and_fall() -> None:
    assert rise_and_fall(5) == (1, 2, 3, 4, 5, 4, 3, 2, 1)
    assert rise_and_fall(5, from_the_top=True) == (5, 4, 3, 2, 1)
    assert rise_and_fall(1) == rise_and_fall(1, from_the_top=True) == (1,)


def test_each_order_of_cotta_has_all_corruptions() -> None:
    assert len(COTTA_ORDERS) == len(set(COTTA_ORDERS)) == 10
    for order in COTTA_ORDERS:
        assert sorted(order) == sorted(IMAGENET_C_15)
    assert COTTA_ORDERS[5][:3] == ("motion_blur", "snow", "fog")  # the order of RoTTA


# The same orders as places in ImageNet-C's list, in hexadecimal: an independent copy.
PLACES = (
    "AD05642E3C1879B",
    "E168B93C0A42D75",
    "B3017846CEDA259",
    "194D7CA238B05E6",
    "D46792A58E01B3C",
    "57913B6A8C40DE2",
    "82EB64D735AC190",
    "46297E081AB5D3C",
    "356104E9BD87AC2",
    "B03684E9DC1275A",
)


def test_the_orders_of_cotta_are_the_published_ones() -> None:
    found = ["".join(f"{IMAGENET_C_15.index(name):X}" for name in order) for order in COTTA_ORDERS]
    assert found == list(PLACES)


def test_some_corruptions_keep_the_order_of_all() -> None:
    names = ("snow", "fog", "motion_blur")
    assert [names[i] for i in cotta_places(names, 5)] == ["motion_blur", "snow", "fog"]


def test_other_corruptions_have_no_order_of_cotta() -> None:
    assert cotta_problem(IMAGENET_C_15, range(10)) is None
    assert HELD_OUT_4[0] in str(cotta_problem(("fog", *HELD_OUT_4), [0]))


def test_few_corruptions_have_fewer_orders() -> None:
    names = ("fog", "snow")
    first = [order.index("snow") < order.index("fog") for order in COTTA_ORDERS]
    assert distinct_orders(names, range(10)) == [0, first.index(not first[0])]
    assert "the same for these 2 corruptions" in str(cotta_problem(names, [0, 1, 2]))
    assert cotta_problem(names, distinct_orders(names, range(10))) is None


@pytest.mark.parametrize(("corruptions", "level", "steps"), [(2, 5, 20), (4, 3, 7)])
def test_one_corruption_fades_while_the_next_grows(corruptions: int, level: int, steps: int) -> None:
    points = crossfade(corruptions, level, steps)
    assert len(points) == (corruptions - 1) * steps + 1
    for first in range(corruptions - 1):
        path = [*points[first * steps : (first + 1) * steps]]
        falls, rises = [p.first_severity for p in path], [p.second_severity for p in path]
        assert {(p.first, p.second) for p in path} == {(first, first + 1)}
        assert falls == sorted(falls, reverse=True)
        assert rises == sorted(rises)
        assert (falls[0], rises[0]) == (level, 0)  # the first corruption alone
        assert all(f + r == pytest.approx(level, abs=2e-3) for f, r in zip(falls, rises, strict=True))
    assert points[-1][2:] == (0, level)


def test_21_points_at_level_5_are_quarters() -> None:
    points = crossfade(2, 5, 20)
    assert [p.second_severity for p in points] == [step / 4 for step in range(21)]
