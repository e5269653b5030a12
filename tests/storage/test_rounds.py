"""Rounds that repeat: one line in the file, one record for each round to all who read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import SMALL
from tests.storage.test_merge import result
from tta_bench import config, grid
from tta_bench.execution import run
from tta_bench.execution.messages import RunPolicy
from tta_bench.execution.progress import RunProgress
from tta_bench.grid import Cell, row_of
from tta_bench.storage import status
from tta_bench.storage.checkpoints import Checkpoint, Checkpoints
from tta_bench.storage.merge import merge
from tta_bench.storage.record import Record, collapsed, encode, expanded
from tta_bench.storage.status import StatusReader
from tta_bench.storage.store import ResultStore
from tta_bench.tables import frame

Write = Callable[..., Path]
ROUNDS, DOMAINS = 10, 2


@pytest.fixture
def cell(write_yaml: Write) -> Cell:
    stream = SMALL["stream"] | {"rounds": ROUNDS}
    return grid.expand(config.load(write_yaml(methods=["source"], quantizers=["fp32"], stream=stream)))[0]


@pytest.fixture
def results(tmp_path: Path, cell: Cell, no_bytes: None) -> Path:
    """Ten rounds of two domains, computed."""
    assert compute(cell, tmp_path / "results").states == {"done": 1}
    return tmp_path / "results"


def compute(cell: Cell, results: Path) -> run.Summary:
    runner = run.make_runner("local", 1, RunPolicy())
    return run.run("small", [cell], runner, results, "missing", RunProgress(quiet=True))


def repetitions(cell: Cell, domain: int, rounds: int = ROUNDS, **facts: Any) -> list[Record]:
    """What a domain of a stateless cell comes to: a computed round and its repetitions."""
    first = result(cell, domain, **facts)
    return [first, *(first | {"round": round, "repeats": 1} for round in range(2, rounds + 1))]


def lines(store: ResultStore, cell: Cell) -> list[Record]:
    content = (store.records_folder / f"{cell.key}.jsonl").read_text()
    return [json.loads(line.split("\t")[0]) for line in content.splitlines()]


def as_before(results: Path, cell: Cell, copy: Path) -> ResultStore:
    """The folder as format 2 had it: a line for every round."""
    store, old = ResultStore(results, "small"), ResultStore(copy, "small")
    old.open([row_of(cell)]).release()
    description = store.description(cell.key)
    assert description is not None
    old.describe(cell.key, description)
    records = store.read(cell.key)
    (old.records_folder / f"{cell.key}.jsonl").write_bytes(b"".join(map(encode, records)))
    manifest = old.folder / "benchmark.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 2}))
    return old


def test_ten_rounds_that_repeat_are_one_line_a_domain(results: Path, cell: Cell) -> None:
    store = ResultStore(results, "small")
    assert [line["rounds"] for line in lines(store, cell)] == [list(range(1, ROUNDS + 1))] * DOMAINS
    records = store.read(cell.key)
    assert [record["round"] for record in records] == [*range(1, ROUNDS + 1)] * DOMAINS
    assert [record.get("repeats") for record in records] == [None, *[1] * (ROUNDS - 1)] * DOMAINS
    assert not any("rounds" in record for record in records)
    rows = frame.load(store)
    assert len(rows) == ROUNDS * DOMAINS
    assert (rows[rows["round"] > 1].repeats == 1).all()


def test_a_folder_with_a_line_for_every_round_is_the_same(results: Path, cell: Cell, tmp_path: Path) -> None:
    store, old = ResultStore(results, "small"), as_before(results, cell, tmp_path / "old")
    assert len(lines(old, cell)) == ROUNDS * DOMAINS
    pd.testing.assert_frame_equal(frame.load(old), frame.load(store))
    assert status.describe(old).data["cells"] == status.describe(store).data["cells"]
    (seen,), (known,) = StatusReader(old).read().cells, StatusReader(store).read().cells
    assert (seen.records, seen.accuracy, seen.seconds) == (known.records, known.accuracy, known.seconds)
    assert compute(cell, tmp_path / "old").ran == 0, "it is found complete"
    assert ResultStore(tmp_path / "old", "small").manifest()["format"] == 3


def test_old_and_new_folders_are_merged(results: Path, cell: Cell, tmp_path: Path) -> None:
    as_before(results, cell, tmp_path / "old")
    for number, sources in enumerate([("old", "results"), ("results", "old"), ("old",)]):
        into = tmp_path / f"merged-{number}"
        merge([tmp_path / source for source in sources], into)
        merged = ResultStore(into, "small")
        assert len(lines(merged, cell)) == DOMAINS
        pd.testing.assert_frame_equal(frame.load(merged), frame.load(ResultStore(results, "small")))


def cut_second_line(content: bytes) -> bytes:
    return content[: content.index(b"\n") + 100]


def drop_second_line(content: bytes) -> bytes:
    return content[: content.index(b"\n") + 1]


@pytest.mark.parametrize("kill", [cut_second_line, drop_second_line])
@pytest.mark.parametrize("before", [False, True])
def test_a_cell_that_was_killed_goes_on_at_its_next_domain(
    kill: Callable[[bytes], bytes], before: bool, results: Path, cell: Cell, tmp_path: Path
) -> None:
    """With a file of format 2, the kill came between two rounds of the first domain."""
    whole = ResultStore(results, "small").read(cell.key)
    store = as_before(results, cell, tmp_path / "old") if before else ResultStore(results, "small")
    path = store.records_folder / f"{cell.key}.jsonl"
    path.write_bytes(kill(path.read_bytes()))
    assert status.describe(store).data["states"] == {"missing": 1}
    outcome = compute(cell, store.folder.parent)
    assert (outcome.ran, outcome.states) == (1, {"done": 1})
    again = store.read(cell.key)
    assert len(lines(store, cell)) == DOMAINS
    assert [r | {"seconds": 0} for r in again] == [r | {"seconds": 0} for r in whole]
    kept = ROUNDS if not before else 0  # a domain without all its rounds is computed again
    assert again[:kept] == whole[:kept]


def test_what_is_written_in_one_line_is_read_as_it_was(cell: Cell) -> None:
    one, two = repetitions(cell, 0), repetitions(cell, 1)
    by_round = [record for pair in zip(one, two, strict=True) for record in pair]
    failure = {"key": cell.key, "status": "failed", "code": cell.code, "reason": "why", "round": 2}
    for records, expected in (
        (one, 1),
        (by_round, 2),
        (one[:1], 1),
        (one[1:], ROUNDS - 1),  # the round that was computed is lost
        ([result(cell, place) for place in range(4)], 4),  # all were computed
        ([one[0], one[1] | {"seconds": 2.0}], 2),  # of two machines
        ([*one, failure], 2),
    ):
        written = collapsed(records)
        assert len(written) == expected
        found = [each for record in written for each in expanded(record)]
        assert sorted(map(encode, found)) == sorted(map(encode, records))


def test_the_last_record_of_a_round_still_comes_last(cell: Cell) -> None:
    old, new = repetitions(cell, 0, rounds=2), repetitions(cell, 0, rounds=2, correct=31)
    assert [each for r in collapsed([*old, *new]) for each in expanded(r)] == [*old, *new]
    own = result(cell, DOMAINS, correct=29)  # round 2 was computed, then repeated
    assert [each for r in collapsed([old[0], own, old[1]]) for each in expanded(r)] == [old[0], own, old[1]]


def test_a_checkpoint_holds_a_line_for_rounds_that_repeat(tmp_path: Path, cell: Cell) -> None:
    kept = Checkpoints(tmp_path)
    saved = Checkpoint(cell.key, 1, 0, b"state")
    kept.save(saved, repetitions(cell, 0))
    assert (tmp_path / "checkpoints" / f"{cell.key}.checkpoint").read_bytes().count(b'"fingerprint"') == 1
    assert kept.load(cell.key) == (saved, repetitions(cell, 0))


@pytest.mark.parametrize(
    "rounds",
    [{}, *({"rounds": wrong} for wrong in ([1], [1, 1], [0, 1], [1, 11], 2)), {"round": 1, "rounds": [1, 2]}],
)
def test_a_line_with_impossible_rounds_is_damage(rounds: Record, tmp_path: Path, cell: Cell) -> None:
    store = ResultStore(tmp_path, "small")
    store.open([row_of(cell)]).release()
    line = {name: value for name, value in result(cell, 0).items() if name != "round"} | rounds
    path = store.records_folder / f"{cell.key}.jsonl"
    path.write_bytes(encode(line) + encode(result(cell, 1)))
    assert len(store.read(cell.key)) == 1
    assert "1 of 2 lines are torn or damaged" in store.damage[path]


def test_fields_named_rounds_of_other_lines_mean_nothing(tmp_path: Path, cell: Cell) -> None:
    """They are kept as they are, like all that this version does not know."""
    store = ResultStore(tmp_path, "small")
    store.open([row_of(cell)]).release()
    failure = {"key": cell.key, "status": "failed", "code": cell.code, "reason": "why", "rounds": 3}
    store.append(cell.key, [failure])
    assert store.read(cell.key) == [failure]
    event = {"key": "trials.x", "event": "end", "number": 0, "how": "complete", "reason": ""}
    odd = event | {"status": "ok", "rounds": 3, "repeats": 1}
    store.append("trials.x", [odd])
    assert store.read("trials.x") == [odd]
