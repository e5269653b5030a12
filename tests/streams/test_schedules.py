"""Which domains come when: gradual severities, CoTTA's orders, and the path between two corruptions."""

from __future__ import annotations

import pytest

from tta_bench.corruptions.sets import HELD_OUT_4, IMAGENET_C_15
from tta_bench.streams.schedules.cotta_orders import COTTA_ORDERS, cotta_places, cotta_problem
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


def test_some_corruptions_keep_the_order_of_all() -> None:
    names = ("snow", "fog", "motion_blur")
    assert [names[i] for i in cotta_places(names, 5)] == ["motion_blur", "snow", "fog"]


def test_other_corruptions_have_no_order_of_cotta() -> None:
    assert cotta_problem(IMAGENET_C_15) is None
    assert HELD_OUT_4[0] in str(cotta_problem(("fog", *HELD_OUT_4)))


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
