"""What reaches the disk, in which order, and what is read back; by hand, with a clock of our own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.storage.test_merge import result
from tta_bench import config, grid
from tta_bench.execution import recorder
from tta_bench.execution.messages import Delivery, Start
from tta_bench.execution.recorder import SYNC_SECONDS, ResultRecorder
from tta_bench.grid import Cell, row_of
from tta_bench.planning.sharing import resolve
from tta_bench.planning.tasks import Task
from tta_bench.storage.checkpoints import Checkpoint
from tta_bench.storage.store import ResultStore

Write = Callable[..., Path]


@pytest.fixture
def cell(write_yaml: Write) -> Cell:
    return grid.expand(config.load(write_yaml(methods=["tent"], quantizers=["fp32"])))[0]


@pytest.fixture
def store(tmp_path: Path, cell: Cell) -> ResultStore:
    found = ResultStore(tmp_path, "small")
    found.open([row_of(cell)]).release()
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that stands still until it is set."""
    clock = MagicMock(return_value=0.0)
    monkeypatch.setattr(recorder.time, "monotonic", clock)
    return clock


def started(store: ResultStore, cell: Cell, anew: bool = False) -> tuple[ResultRecorder, Start]:
    made = ResultRecorder(store, MagicMock(), [cell] if anew else [])
    (start,) = made.started(Task((resolve(cell),)))
    return made, start


def at(cell: Cell, place: int) -> Checkpoint:
    return Checkpoint(cell.key, place, 0, f"state {place}".encode())


def through(cell: Cell, place: int) -> Delivery:
    """The end of a domain: its record, and the state after it."""
    return Delivery(cell.key, [result(cell, place)], at(cell, place + 1))


# -- starts -----------------------------------------------------------------------------------------


def test_an_empty_folder_starts_a_cell_at_the_beginning(store: ResultStore, cell: Cell) -> None:
    made, start = started(store, cell)
    assert start == Start()
    made.progress.started.assert_called_once_with(cell, 0)  # type: ignore[attr-defined]


def test_a_cell_goes_on_from_record_and_checkpoint(store: ResultStore, cell: Cell) -> None:
    made, _ = started(store, cell)
    made.delivered(through(cell, 0))
    made.delivered(through(cell, 1))
    again, start = started(store, cell)
    assert start == Start(frozenset({0, 1}), at(cell, 2))
    again.progress.started.assert_called_once_with(cell, 2)  # type: ignore[attr-defined]
    assert again.missing[cell.key] == 2


def test_records_that_lead_nowhere_are_dropped_from_the_disk(store: ResultStore, cell: Cell) -> None:
    store.append(cell.key, [result(cell, 1)])
    assert started(store, cell)[1] == Start()
    assert store.read(cell.key) == []


def test_a_cell_that_is_computed_anew_is_forgotten_once(store: ResultStore, cell: Cell) -> None:
    made, _ = started(store, cell)
    made.delivered(Delivery(cell.key, description={"memory_bytes": 5}))
    made.delivered(through(cell, 0))
    again, start = started(store, cell, anew=True)
    assert start == Start()
    assert store.read(cell.key) == []
    assert store.description(cell.key) is None
    again.delivered(through(cell, 0))
    (later,) = again.started(Task((resolve(cell),)))
    assert later == Start(frozenset({0}), at(cell, 1)), "the worker died: the cell goes on"


@pytest.mark.parametrize(("news", "described"), [({"memory_bytes": 5}, True), ({"packed_bytes": 5}, False)])
def test_a_cell_is_described_once_its_bytes_are_known(
    news: dict[str, int], described: bool, store: ResultStore, cell: Cell
) -> None:
    store.describe(cell.key, news)
    assert started(store, cell)[1].described is described


def test_a_damaged_checkpoint_is_told_and_the_cell_starts_over(store: ResultStore, cell: Cell) -> None:
    made, _ = started(store, cell)
    made.delivered(through(cell, 0))
    (path,) = made.checkpoints.folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    again, start = started(store, cell)
    assert start == Start()
    (said,) = again.progress.note.call_args.args  # type: ignore[attr-defined]
    assert "a damaged checkpoint was set aside" in said
    assert "the cell goes on from its last complete state" in said


def test_failures_of_this_run_survive_the_start_of_another_piece(store: ResultStore, cell: Cell) -> None:
    failure = {"key": cell.key, "status": "failed", "code": cell.code, "reason": "why"}
    made, _ = started(store, cell)
    made.delivered(through(cell, 0))
    made.delivered(Delivery(cell.key, [failure]))
    made.started(Task((resolve(cell),)))
    assert store.read(cell.key) == [result(cell, 0), failure]
    assert started(store, cell)[1].finished == {0}
    assert store.read(cell.key) == [result(cell, 0)], "another run tries again"


def test_a_record_of_no_domain_of_the_cell_is_dropped(store: ResultStore, cell: Cell) -> None:
    store.append(cell.key, [result(cell, 0, corruption="snow")])
    unread = ResultStore(store.folder.parent, "small")  # has not seen the manifest
    assert started(unread, cell)[1] == Start()
    assert unread.read(cell.key) == []


def test_rounds_are_shared_unless_told_otherwise(write_yaml: Write, store: ResultStore) -> None:
    (cell,) = grid.expand(config.load(write_yaml(methods=["source"], quantizers=["fp32"])))
    found = [result(cell, 0), result(cell, 2, repeats=1)]
    for resolved, kept in (
        (resolve(cell), found),
        (resolve(cell, share=True), found),
        (resolve(cell, share=False), found[:1]),
    ):
        store.keep(cell.key, found)
        (start,) = ResultRecorder(store, MagicMock(), []).started(Task((resolved,)))
        assert start.finished == {0}
        assert store.read(cell.key) == kept


# -- deliveries -------------------------------------------------------------------------------------


def test_a_checkpoint_holds_the_records_that_the_log_may_lack(
    store: ResultStore, cell: Cell, clock: Any
) -> None:
    made, _ = started(store, cell)
    made.checkpoints = MagicMock(wraps=made.checkpoints)
    for place, second in enumerate((0.0, SYNC_SECONDS - 1, SYNC_SECONDS)):
        clock.return_value = second
        made.delivered(through(cell, place))
    saved = [(call.args[1], call.kwargs["sync"]) for call in made.checkpoints.save.call_args_list]
    one, two, three = (result(cell, place) for place in range(3))
    # A list is emptied, not cleared: what was handed over stays as it was.
    assert [sync for _, sync in saved] == [True, False, True]
    assert saved[1][0] == saved[2][0] == [two, three]
    assert saved[0][0] == [one]


def test_a_record_that_only_the_checkpoint_has_is_not_lost(store: ResultStore, cell: Cell) -> None:
    made, _ = started(store, cell)
    made.delivered(through(cell, 0))
    made.checkpoints.save(at(cell, 2), [result(cell, 0), result(cell, 1)])  # and the process dies
    _, start = started(store, cell)
    assert start == Start(frozenset({0, 1}), at(cell, 2))
    assert store.read(cell.key) == [result(cell, 0), result(cell, 1)]


def test_of_a_record_that_log_and_checkpoint_have_the_logs_is_kept(store: ResultStore, cell: Cell) -> None:
    store.append(cell.key, [result(cell, 0, correct=31)])
    started(store, cell)[0].checkpoints.save(at(cell, 2), [result(cell, 0), result(cell, 1)])
    store.append(cell.key, [result(cell, 0, correct=31)])
    _, start = started(store, cell)
    assert start.finished == {0, 1}
    assert store.read(cell.key) == [result(cell, 0, correct=31), result(cell, 1)]


def test_a_record_of_no_domain_in_a_checkpoint_is_dropped(store: ResultStore, cell: Cell) -> None:
    started(store, cell)[0].checkpoints.save(at(cell, 1), [result(cell, 0, corruption="snow")])
    assert started(store, cell)[1] == Start()


def test_the_disk_is_waited_for_at_first_then_every_few_seconds_and_at_last(
    store: ResultStore, cell: Cell, clock: Any
) -> None:
    made, _ = started(store, cell)
    append = store.append = MagicMock(wraps=store.append)  # type: ignore[method-assign]
    for place, second in enumerate((100.0, 104.9, 105.0, 105.1)):  # five seconds, as the documentation says
        clock.return_value = second
        made.delivered(through(cell, place))
    assert [call.kwargs["sync"] for call in append.call_args_list] == [True, False, True, True]
    assert store.status(cell) == "done"


def test_a_delivery_without_records_writes_the_log_only_when_it_is_time(
    store: ResultStore, cell: Cell, clock: Any
) -> None:
    made, _ = started(store, cell)
    made.delivered(through(cell, 0))
    append = store.append = MagicMock(wraps=store.append)  # type: ignore[method-assign]
    made.delivered(Delivery(cell.key, checkpoint=at(cell, 1)))
    append.assert_not_called()
    clock.return_value = SYNC_SECONDS
    made.delivered(Delivery(cell.key, checkpoint=at(cell, 1)))
    append.assert_called_once_with(cell.key, [], sync=True)


def test_a_finished_cell_leaves_no_checkpoint(store: ResultStore, cell: Cell) -> None:
    made, _ = started(store, cell)
    for place in range(3):
        made.delivered(through(cell, place))
        assert len(list(made.checkpoints.folder.iterdir())) == 1
    made.delivered(through(cell, 3))
    assert not list(made.checkpoints.folder.iterdir())


def test_what_fails_does_not_count_as_computed(store: ResultStore, cell: Cell) -> None:
    failure = {"key": cell.key, "status": "failed", "code": cell.code, "reason": "why"}
    made, _ = started(store, cell)
    made.delivered(through(cell, 0))
    made.delivered(Delivery(cell.key, [failure]))
    assert made.missing[cell.key] == 3
    assert store.read(cell.key) == [result(cell, 0), failure]


def test_the_screen_is_told_after_the_disk(store: ResultStore, cell: Cell) -> None:
    made, _ = started(store, cell)
    progress: Any = made.progress
    progress.records.side_effect = lambda records: store.read(cell.key) == records or pytest.fail("not yet")
    made.delivered(through(cell, 0))
    progress.records.assert_called_once_with([result(cell, 0)])
    made.delivered(Delivery(cell.key, checkpoint=at(cell, 1)))
    progress.records.assert_called_once()
    made.prepared(1, 2)
    progress.prepared.assert_called_once_with(1, 2)


def test_descriptions_are_kept(store: ResultStore, cell: Cell) -> None:
    made, _ = started(store, cell)
    made.delivered(Delivery(cell.key, description={"memory_bytes": 5}))
    made.delivered(through(cell, 0))
    found = store.description(cell.key)
    assert found is not None
    assert found["memory_bytes"] == 5
