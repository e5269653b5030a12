"""A stream that is cut anywhere and continued elsewhere gives the numbers of a stream that was not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.faults.conftest import benchmark
from tta_bench import config, grid
from tta_bench.execution.executor import Executor
from tta_bench.execution.messages import Delivery, RunPolicy, Start
from tta_bench.execution.recorder import start_of
from tta_bench.grid import Cell
from tta_bench.planning.sharing import resolve
from tta_bench.plugins import registry
from tta_bench.storage.checkpoints import Checkpoint, Checkpoints

Records = dict[tuple[str, int, str], dict[str, Any]]
NETWORKS = {"fozo": {"models": ["vit-micro"]}}  # its prompts stand between tokens
SHORT = {"corruptions": ["fog"], "batch_size": 4, "limit": 12}  # three batches, twice


@pytest.fixture(scope="module")
def executor() -> Executor:
    return Executor()


def cells_of(methods: Sequence[Any], **changes: Any) -> list[Cell]:
    return grid.expand(config.parse(benchmark(methods, **changes)))


class Disk:
    """What the driver keeps: all records, and the last checkpoint of every cell in a real file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.records: dict[str, list[dict[str, Any]]] = {}
        self.checkpoints = Checkpoints(folder)

    def start(self, cell: Cell) -> Start:
        found = self.checkpoints.load(cell.key)
        checkpoint = None if found is None else found[0]
        start, self.records[cell.key] = start_of(resolve(cell), self.records.get(cell.key, []), checkpoint)
        return replace(start, described=True)  # bytes are not what is tested here

    def take(self, deliveries: Iterator[Delivery]) -> None:
        for delivery in deliveries:
            self.records[delivery.key] += delivery.records
            if delivery.checkpoint is not None:
                self.checkpoints.save(delivery.checkpoint)

    def numbers(self) -> Records:
        found: Records = {}
        for record in (record for records in self.records.values() for record in records):
            assert record["status"] == "ok", record["reason"]
            where = (record["key"], record["round"], record["corruption"])
            assert where not in found, "recorded twice"
            found[where] = {k: v for k, v in record.items() if k != "seconds"}
        return found


def in_one_go(cells: Sequence[Cell], executor: Executor, folder: Path) -> Records:
    disk = Disk(folder)
    disk.take(executor.run([resolve(cell) for cell in cells], [disk.start(cell) for cell in cells]))
    return disk.numbers()


def in_pieces(cells: Sequence[Cell], executor: Executor, folder: Path, questions: int) -> Records:
    """Stopped whenever so many questions about it were asked; methods and models are new after that."""
    disk = Disk(folder)
    expected = sum(cell.records_expected for cell in cells)
    for _ in range(100):
        left = iter(range(questions))
        disk.take(
            executor.run(
                [resolve(cell) for cell in cells],
                [disk.start(cell) for cell in cells],
                lambda i=left: next(i, None) is None,
            )
        )
        if sum(map(len, disk.records.values())) == expected:
            return disk.numbers()
    raise AssertionError("no progress")


@pytest.mark.parametrize("name", [*registry.names("methods"), "drift"])
def test_every_method_goes_on_bit_for_bit(name: str, executor: Executor, tmp_path: Path) -> None:
    cells = cells_of([name], stream=SHORT, **NETWORKS.get(name, {}))
    whole = in_one_go(cells, executor, tmp_path / "whole")
    assert len(whole) == 2
    assert in_pieces(cells, executor, tmp_path / "pieces", 3) == whole


@pytest.mark.parametrize(
    "changes", [{"reset": "domain"}, {"order": "reshuffled"}, {"reset": "domain", "order": "reshuffled"}]
)
def test_every_protocol_goes_on_bit_for_bit(
    changes: dict[str, str], executor: Executor, tmp_path: Path
) -> None:
    cells = cells_of(["drift", "source", "tent"], stream=changes)
    for cell in cells:
        whole = in_one_go([cell], executor, tmp_path / f"whole {cell.key}")
        assert in_pieces([cell], executor, tmp_path / f"pieces {cell.key}", 3) == whole


@pytest.mark.parametrize("questions", [5, 8])
def test_cells_that_share_features_go_on_each_from_its_own_place(
    questions: int, executor: Executor, tmp_path: Path
) -> None:
    cells = cells_of(["source", "lame", "t3a", "shift"])
    whole = in_one_go(cells, executor, tmp_path / "whole")
    assert in_pieces(cells, executor, tmp_path / "pieces", questions) == whole


def test_a_long_domain_is_saved_inside(tmp_path: Path) -> None:
    """With no time between checkpoints there is one after every batch, but for what has no use for it."""
    cell, source = cells_of(["drift", "source"])
    eager = Executor(RunPolicy(checkpoint_seconds=0))
    described = [Start(described=True)]
    saved = [d.checkpoint for d in eager.run([resolve(cell)], described) if d.checkpoint]
    assert [(c.position, c.batch) for c in saved] == [
        (place, batch) for place in range(4) for batch in ((0, 1, 2) if place else (1, 2))
    ]
    lazy = Executor(RunPolicy(checkpoint_seconds=1e9))
    assert [d.checkpoint.batch for d in lazy.run([resolve(cell)], described) if d.checkpoint] == [0, 0, 0]
    assert not [d for d in lazy.run([resolve(source)], described) if d.checkpoint], "it remembers nothing"


def test_any_checkpoint_leads_to_the_same_end(tmp_path: Path) -> None:
    """Not only the last one: a crash may come at any time after any of them."""
    (cell,) = cells_of(["drift"])
    eager = Executor(RunPolicy(checkpoint_seconds=0))
    deliveries = list(eager.run([resolve(cell)], [Start(described=True)]))
    records = [record for delivery in deliveries for record in delivery.records]
    for i, checkpoint in [(i, d.checkpoint) for i, d in enumerate(deliveries) if d.checkpoint]:
        before = [record for delivery in deliveries[: i + 1] for record in delivery.records]
        start, kept = start_of(resolve(cell), before, checkpoint)
        rest = [r for d in eager.run([resolve(cell)], [replace(start, described=True)]) for r in d.records]
        assert [r | {"seconds": 0} for r in kept + rest] == [r | {"seconds": 0} for r in records]


def test_a_method_without_a_state_of_its_own_starts_over(executor: Executor, tmp_path: Path) -> None:
    (cell,) = cells_of(["unsaved"])
    deliveries = list(executor.run([resolve(cell)], [Start(described=True)]))
    assert not any(delivery.checkpoint for delivery in deliveries)
    start, kept = start_of(resolve(cell), deliveries[1].records, None)
    assert (start, kept) == (Start(), [])


def test_a_state_that_is_no_plain_data_is_told_at_once(executor: Executor) -> None:
    (cell,) = cells_of(["unsavable"])
    _, delivery = executor.run([resolve(cell)], [Start(described=True)])
    assert delivery.records[0]["status"] == "failed"
    assert (
        "state['method']['model']: a ResNetModel is neither a tensor nor plain data"
        in delivery.records[0]["reason"]
    )


def test_records_beyond_the_checkpoint_and_a_checkpoint_beyond_the_records(tmp_path: Path) -> None:
    (cell,) = cells_of(["drift"])
    places = [(round, name) for round in (1, 2) for name in ("gaussian_noise", "fog")]
    records = [
        {"status": "ok", "code": cell.code, "round": r, "corruption": c, "severity": 5} for r, c in places
    ]
    checkpoint = Checkpoint(cell.key, 2, 0, b"")
    start, kept = start_of(resolve(cell), records[:3], checkpoint)
    assert start == Start(frozenset({0, 1}), checkpoint)
    assert kept == records[:2], "the record after the checkpoint has no state"
    start, kept = start_of(resolve(cell), [records[0], *records[2:]], checkpoint)
    assert (start, kept) == (Start(), []), "a record was damaged: its state is gone with it"
    start, kept = start_of(resolve(cell), records, None)
    assert (start.finished, kept) == ({0, 1, 2, 3}, records), "done, while its neighbours are not"


def test_what_forgets_goes_on_at_any_missing_domain(tmp_path: Path) -> None:
    (cell,) = cells_of(["source"])
    records = [
        {"status": "ok", "code": cell.code, "round": round, "corruption": name, "severity": 5}
        for name in ("gaussian_noise", "fog")
        for round in (1, 2)
    ]
    start, kept = start_of(resolve(cell), records[2:], None)
    assert start.finished == {1}
    assert kept == records[2:]
    start, kept = start_of(resolve(cell), records[:3], None)
    assert start.finished == {0}, "of fog, one round is missing"
    assert kept == records[:2]


def test_a_run_that_dies_while_it_writes_a_checkpoint_has_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(Checkpoint("key", 3, 0, b"old"))
    with monkeypatch.context() as patched:
        patched.setattr(
            "tta_bench.storage.checkpoints.write_atomically", MagicMock(side_effect=KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(Checkpoint("key", 4, 0, b"new"))
    assert checkpoints.load("key") == (Checkpoint("key", 3, 0, b"old"), [])
    checkpoints.save(Checkpoint("key", 5, 0, b"newer"))
    assert checkpoints.load("key") == (Checkpoint("key", 5, 0, b"newer"), [])
    assert [path.name for path in checkpoints.folder.iterdir()] == ["key.checkpoint"]
    checkpoints.remove("key")
    assert not list(checkpoints.folder.iterdir())
