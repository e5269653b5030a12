"""Where a cell goes on, for every kind of cell and every state of its folder; nothing is computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.storage.test_merge import result
from tta_bench import config, grid
from tta_bench.execution.messages import Start
from tta_bench.execution.recorder import start_of
from tta_bench.grid import Cell
from tta_bench.planning.sharing import resolve
from tta_bench.storage.checkpoints import Checkpoint

Write = Callable[..., Path]
THREE = {"corruptions": ["gaussian_noise", "fog", "snow"], "rounds": 2, "batch_size": 16, "limit": 40}
NOTHING: tuple[Start, list[Any]] = (Start(), [])


@pytest.fixture
def cell_of(write_yaml: Write) -> Callable[..., Cell]:
    def make(method: object, **stream: Any) -> Cell:
        file = write_yaml(methods=[method], quantizers=["fp32"], stream=THREE | stream)
        (cell,) = grid.expand(config.load(file))
        return cell

    return make


Of = Callable[..., Cell]


def records(cell: Cell, *places: int, **facts: Any) -> list[dict[str, Any]]:
    return [result(cell, place, **facts) for place in places]


def at(cell: Cell, place: int, batch: int = 0) -> Checkpoint:
    return Checkpoint(cell.key, place, batch, b"state")


def test_an_empty_folder_starts_at_the_beginning(cell_of: Of) -> None:
    for method in ("source", "tent", {"use": "tent", "reset": "domain"}):
        assert start_of(resolve(cell_of(method)), [], None) == NOTHING


# -- stateless cells --------------------------------------------------------------------------------


def test_a_stateless_domain_is_finished_with_its_last_round(cell_of: Of) -> None:
    cell = cell_of("source")
    start, kept = start_of(resolve(cell), records(cell, 5, 2, 1, 0), None)
    assert start == Start(frozenset({2}))
    assert kept == records(cell, 2, 5), "in the order of their places"


def test_a_stateless_cell_keeps_a_checkpoint_inside_an_open_domain_only(cell_of: Of) -> None:
    cell = cell_of({"use": "tent", "reset": "domain"})
    found = records(cell, 0, 3)
    assert start_of(resolve(cell), found, at(cell, 1, 2)) == (Start(frozenset({0}), at(cell, 1, 2)), found)
    assert start_of(resolve(cell), found, at(cell, 0, 2)) == (Start(frozenset({0})), found)


def test_reshuffled_rounds_are_finished_one_by_one(cell_of: Of) -> None:
    cell = cell_of("source", order="reshuffled")
    found = records(cell, 1, 5)
    assert start_of(resolve(cell), found, None) == (Start(frozenset({1, 5})), found)
    assert start_of(resolve(cell), found, at(cell, 4)) == (Start(frozenset({1, 5}), at(cell, 4)), found)
    assert start_of(resolve(cell), found, at(cell, 5)) == (Start(frozenset({1, 5})), found)


def test_without_sharing_copied_rounds_are_computed(cell_of: Of) -> None:
    cell = cell_of("source")
    found = records(cell, 0, 1, 2) + records(cell, 3, repeats=1)
    start, kept = start_of(resolve(cell, share=False), found, None)
    assert start == Start(frozenset({0, 1, 2}))
    assert kept == found[:3]
    shared, all_kept = start_of(resolve(cell), found, None)
    assert shared == Start(frozenset({0}))
    assert all_kept == [found[0], found[3]]


def test_a_part_counts_all_other_domains_as_finished(cell_of: Of) -> None:
    cell = cell_of("source", corruptions=["fog", "snow", "pixelate", "contrast"])
    found = records(cell, 1, 5)
    inside = at(cell, 2, 1)
    whole, kept = start_of(resolve(cell), found, inside)
    assert (whole, kept) == (Start(frozenset({1}), inside), found)
    part, kept = start_of(resolve(cell), found, inside, frozenset({1, 2}))
    assert (part, kept) == (Start(frozenset({0, 1, 3}), inside), found), "all records stay"
    other, _ = start_of(resolve(cell), found, inside, frozenset({0, 1}))
    assert other == Start(frozenset({1, 2, 3})), "the checkpoint is of another part"
    again, _ = start_of(resolve(cell, share=False), [], None, frozenset({1, 2}))
    assert again == Start(frozenset({0, 3, 4, 7})), "in all rounds"
    assert start_of(resolve(cell), [], None, frozenset(range(4))) == NOTHING


# -- cells with state -------------------------------------------------------------------------------


def test_a_cell_with_state_goes_on_at_its_checkpoint(cell_of: Of) -> None:
    cell = cell_of("tent")
    found = records(cell, 0, 1, 2)
    for place in (0, 1, 2, 3):
        start, kept = start_of(resolve(cell), found, at(cell, place, 1))
        assert start == Start(frozenset(range(place)), at(cell, place, 1))
        assert kept == found[:place]


def test_a_cell_with_state_starts_over_without_its_checkpoint_or_a_record(cell_of: Of) -> None:
    cell = cell_of("tent")
    assert start_of(resolve(cell), records(cell, 0, 1, 2), None) == NOTHING
    assert start_of(resolve(cell), records(cell, 0, 2), at(cell, 3)) == NOTHING
    assert start_of(resolve(cell), records(cell, 1), at(cell, 1)) == NOTHING


# -- all cells --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["source", "tent", {"use": "tent", "reset": "domain"}])
def test_a_complete_cell_needs_no_checkpoint(method: object, cell_of: Of) -> None:
    cell = cell_of(method)
    start, kept = start_of(resolve(cell), records(cell, *range(6)), at(cell, 4))
    assert start.checkpoint is None
    assert start.finished >= {0, 1, 2}
    assert kept == records(cell, *range(6))


@pytest.mark.parametrize("facts", [{"status": "failed"}, {"code": "other"}])
@pytest.mark.parametrize("method", ["source", "tent"])
def test_failures_and_records_of_other_code_are_computed_again(
    method: str, facts: dict[str, str], cell_of: Of
) -> None:
    cell = cell_of(method)
    found = records(cell, 0, 1, 3, 4) + records(cell, 2, 5, **facts)
    start, kept = start_of(resolve(cell), found, at(cell, 2))
    assert start.finished == {0, 1}
    expected = (0, 1) if method == "tent" else (0, 1, 3, 4)
    assert kept == records(cell, *expected)


def test_a_record_without_a_place_is_dropped(cell_of: Of) -> None:
    cell = cell_of("source")
    failure = {"key": cell.key, "status": "failed", "code": cell.code, "reason": "why"}
    assert start_of(resolve(cell), [failure], None) == NOTHING
