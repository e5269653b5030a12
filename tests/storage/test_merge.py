"""`tta-bench merge`: what several machines know together, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tta_bench import config, grid
from tta_bench.cli import app
from tta_bench.errors import UserError
from tta_bench.execution import run
from tta_bench.execution.messages import RunPolicy
from tta_bench.execution.progress import RunProgress
from tta_bench.grid import Cell, row_of
from tta_bench.storage.cell_merge import merge_cell
from tta_bench.storage.checkpoints import Checkpoint, Checkpoints
from tta_bench.storage.merge import merge
from tta_bench.storage.record import Record
from tta_bench.storage.store import ResultStore
from tta_bench.tables import frame
from tta_bench.tables.build import build
from tta_bench.tables.render import render

Write = Callable[..., Path]


@pytest.fixture
def cells(write_yaml: Write) -> list[Cell]:
    """Source, BN-Adapt and TENT, each over two rounds of two domains."""
    return grid.expand(config.load(write_yaml(quantizers=["fp32"])))


class Machine:
    """A results folder and the name of the host that wrote it."""

    def __init__(self, folder: Path, cells: list[Cell], host: str) -> None:
        self.folder, self.host = folder, host
        self.store = ResultStore(folder, "small")
        self.store.open([row_of(cell) for cell in cells]).release()

    def describe(self, cell: Cell, **facts: Any) -> None:
        versions = {"torch": "2.9", "timm": "1.0"}
        here = {"versions": versions, "device": "cpu", "cpu": "x86_64 AVX2", "host": f"{self.host}, x86_64"}
        common = {"memory_bytes": 100, "packed_bytes": 50, "environments": {self.host: here}}
        self.store.describe(cell.key, common | facts)

    def run(self, cell: Cell, *places: int, correct: int = 30, **facts: Any) -> None:
        """Write the cell's description and the records of these places."""
        self.describe(cell, **facts)
        for place in places:
            made = result(cell, place, correct=correct, seconds=len(self.host), environment=self.host)
            self.store.append(cell.key, [made])

    def refuse(self, cell: Cell, status: str) -> None:
        refusal = {"key": cell.key, "status": status, "code": cell.code, "reason": f"why: {self.host}"}
        self.store.append(cell.key, [refusal])


def result(cell: Cell, place: int, **facts: Any) -> Record:
    """A record of one domain; places count over all rounds."""
    turn, index = divmod(place, len(cell.domains))
    corruption, severity = cell.domains[index]
    where = {"round": turn + 1, "corruption": corruption, "severity": severity}
    counts = {"images": 40, "correct": 30, "correct_per_batch": [16, 14], "top5_correct": 38, "ece": 0.1}
    passes = {"forward_images": 40, "backward_images": 0, "skipped_updates": 0, "nonfinite_images": 0}
    ends = {"seconds": 1.0, "fingerprint": f"mark-{place}", "environment": "here"}
    return {"key": cell.key, "status": "ok", "code": cell.code, **where, **counts, **passes, **ends, **facts}


@pytest.fixture
def two(tmp_path: Path, cells: list[Cell]) -> tuple[Machine, Machine]:
    return Machine(tmp_path / "A", cells, "left"), Machine(tmp_path / "B", cells, "right")


def test_each_machine_contributes_what_it_has(
    two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path
) -> None:
    left, right = two
    left.run(cells[0], 0, 1, 2, 3)
    left.run(cells[1], 0, 1)
    right.run(cells[1], 0, 1, 2, 3)
    right.refuse(cells[2], "unsupported")
    found = merge([left.folder, right.folder], tmp_path / "C").data[0]
    assert found["states"] == {"done": 2, "unsupported": 1}
    assert found["records"] == {str(left.store.folder): 6, str(right.store.folder): 3}
    rows = frame.load(ResultStore(tmp_path / "C", "small"))
    assert (rows.status == "ok").sum() == 8
    assert set(rows[rows.status == "ok"].accuracy) == {75.0}


def test_two_halves_of_a_real_run_make_the_whole(write_yaml: Write, tmp_path: Path) -> None:
    cells = grid.expand(config.load(write_yaml(methods=["source", "t3a"], quantizers=["fp32"])))

    def compute(results: Path, chosen: list[Cell]) -> run.Summary:
        runner = run.make_runner("local", 1, RunPolicy())
        return run.run("small", cells, runner, results, "missing", RunProgress(quiet=True), chosen)

    for place, chosen in {"whole": cells, "A": cells[:1], "B": cells[1:]}.items():
        compute(tmp_path / place, chosen)
    merge([tmp_path / "A", tmp_path / "B"], tmp_path / "C")
    assert compute(tmp_path / "C", cells).ran == 0, "nothing is left to run"
    merge([tmp_path / "whole"], tmp_path / "C")  # and the same numbers a second time are no conflict
    tables = [
        render(build(frame.load(ResultStore(tmp_path / place, "small")), "long-term"), "csv")
        for place in ("whole", "C")
    ]
    assert tables[0] == tables[1]


def test_a_cell_of_two_machines_says_which_record_is_whose(
    two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path
) -> None:
    left, right = two
    left.run(cells[0], 0, 1)
    right.run(cells[0], 0, 1, 2, 3)
    merge([left.folder, right.folder], tmp_path / "C")
    records = ResultStore(tmp_path / "C", "small").read(cells[0].key)
    assert [record["environment"] for record in records] == ["left", "left", "right", "right"]
    description = ResultStore(tmp_path / "C", "small").description(cells[0].key)
    assert description is not None
    assert list(description["environments"]) == ["left", "right"]
    log = json.loads((tmp_path / "C" / "small" / "merges.jsonl").read_text())
    assert log["records"] == {str(left.store.folder): 2, str(right.store.folder): 2}


def test_conflicts_are_refused_by_name_and_nothing_is_written(
    two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path
) -> None:
    left, right = two
    for cell in cells:
        left.run(cell, 0, 1)
    right.run(cells[0], 0, 1, correct=31)
    right.run(cells[1], 0, 1, packed_bytes=51)
    right.refuse(cells[2], "unsupported")
    with pytest.raises(UserError) as refusal:
        merge([left.folder, right.folder], tmp_path / "C")
    said = str(refusal.value).splitlines()
    domain = cells[0].domains[0][0]
    where = f"{cells[0].key}, round 1, {domain}-5: "
    assert f"{where}correct is 30 in {left.store.folder} and 31 in {right.store.folder}." in said
    assert f"{cells[1].key}: packed_bytes is 50 in" in said[2]
    assert said[3].startswith(f"{cells[2].key}: unsupported in {right.store.folder}, and has results in")
    assert said[-1].startswith("Nothing was merged")
    assert not (tmp_path / "C").exists()


def test_what_rounding_and_time_do_is_no_conflict(
    two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path
) -> None:
    left, right = two
    left.store.append(cells[0].key, [result(cells[0], 0, ece=0.1, seconds=1.0)])
    right.store.append(cells[0].key, [result(cells[0], 0, ece=0.1 + 1e-12, seconds=9.0)])
    merge([left.folder, right.folder], tmp_path / "C")
    assert len(ResultStore(tmp_path / "C", "small").read(cells[0].key)) == 1
    right.store.append(cells[0].key, [result(cells[0], 0, ece=0.11)])
    with pytest.raises(UserError, match=r"ece is 0\.1 in .* and 0\.11 in"):
        merge([left.folder, right.folder], tmp_path / "D")


def test_results_outdo_failures_and_a_note_says_so(
    two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path
) -> None:
    left, right = two
    left.run(cells[0], 0)
    left.refuse(cells[0], "failed")
    right.run(cells[0], 0, 1)
    for machine in two:
        machine.refuse(cells[1], "failed")
    found = merge([left.folder, right.folder], tmp_path / "C").data[0]
    assert found["states"] == {"failed": 1, "missing": 2}
    assert found["notes"] == [
        f"{cells[0].key}: failed in {left.store.folder}; the results in {right.store.folder} count."
    ]


@pytest.mark.parametrize("damage", [lambda b: b[:-5], lambda b: b.replace(b'"correct":30', b'"correct":40')])
def test_damaged_records_are_named_and_left_out(
    damage: Callable[[bytes], bytes], two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path
) -> None:
    left, right = two
    left.run(cells[0], 3)
    right.run(cells[0], 0, 1)
    path = left.store.records_folder / f"{cells[0].key}.jsonl"
    path.write_bytes(damage(path.read_bytes()))
    before = path.read_bytes()
    found = merge([left.folder, right.folder], tmp_path / "C").data[0]
    assert [str(path) in note and "1 of 1 lines" in note for note in found["notes"]] == [True]
    assert found["records"] == {str(right.store.folder): 2}
    assert path.read_bytes() == before, "what is merged is only read"


def test_the_furthest_checkpoint_comes_along(
    two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path
) -> None:
    for machine, place in zip(two, (1, 2), strict=True):
        machine.run(cells[2], *range(place))
        Checkpoints(machine.store.folder).save(Checkpoint(cells[2].key, place, 0, b"state"))
    two[0].run(cells[0], 0, 1, 2, 3)
    Checkpoints(two[0].store.folder).save(Checkpoint(cells[0].key, 3, 0, b"of no use any more"))
    merge([machine.folder for machine in two], tmp_path / "C")
    found = Checkpoints(tmp_path / "C" / "small")
    assert found.load(cells[2].key) == (Checkpoint(cells[2].key, 2, 0, b"state"), [])
    assert found.load(cells[0].key) is None


def test_merging_again_into_the_same_folder_changes_nothing(
    two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path
) -> None:
    left, right = two
    left.run(cells[0], 0, 1)
    right.run(cells[0], 0, 1, 2, 3)
    merge([right.folder], left.folder)
    first = left.store.read(cells[0].key)
    again = merge([left.folder, right.folder], left.folder).data[0]
    assert left.store.read(cells[0].key) == first
    assert again["records"] == {str(left.store.folder): 4}
    merge([right.folder, left.folder], tmp_path / "C")
    records = ResultStore(tmp_path / "C", "small").read(cells[0].key)
    assert {record["environment"] for record in records} == {"right"}, "the other machine adds nothing"


def test_what_was_measured_at_the_end_comes_along(
    two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path
) -> None:
    two[0].run(cells[0], 0, 1)
    two[0].describe(cells[0], measured_bytes=7)
    merge([machine.folder for machine in two], tmp_path / "C")
    merged = ResultStore(tmp_path / "C", "small")
    assert merged.read(cells[0].key) == two[0].store.read(cells[0].key)
    assert merged.description(cells[0].key) == two[0].store.description(cells[0].key)


def test_different_code_is_told_once_for_a_cell(
    two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path
) -> None:
    """Before: once for every record, so that a grid of many rounds hid the numbers that differ."""
    left, right = two
    left.run(cells[0], 0, 1, 2, 3)
    right.describe(cells[0])
    right.store.append(cells[0].key, [result(cells[0], place, code="other") for place in range(4)])
    with pytest.raises(UserError) as caught:
        merge([left.folder, right.folder], tmp_path / "C")
    first, second, *_ = str(caught.value).splitlines()
    assert first.startswith(f"{cells[0].key}: the code of its plugins differs between")
    assert second.startswith("Nothing was merged")


def test_grids_that_differ_become_one_table(write_yaml: Write, tmp_path: Path) -> None:
    machines = []
    for host, methods in {"A": ["source", "t3a"], "B": ["source", "lame"]}.items():
        cells = grid.expand(config.load(write_yaml(methods=methods, quantizers=["fp32"])))
        machines.append(Machine(tmp_path / host, cells, host))
        for cell in cells:
            machines[-1].run(cell, 0, 1, 2, 3)
    merge([machine.folder for machine in machines], tmp_path / "C")
    cells = ResultStore(tmp_path / "C", "small").manifest()["cells"]
    placed = [(cell["labels"]["method"], cell["labels"]["order"]) for cell in cells]
    assert placed == [("source", [0, 0, 0]), ("t3a", [0, 0, 1]), ("lame", [0, 0, 2])]


def test_records_of_cells_that_were_left_out_since_stay(
    two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path
) -> None:
    left, right = two
    left.run(cells[0], 0)
    left.store.open([row_of(cell) for cell in cells[1:]]).release()
    right.store.open([row_of(cell) for cell in cells[1:]]).release()
    merge([left.folder, right.folder], tmp_path / "C")
    assert len(ResultStore(tmp_path / "C", "small").read(cells[0].key)) == 1


def test_a_folder_that_a_run_holds_is_not_written(
    two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path
) -> None:
    left, right = two
    right.run(cells[0], 0)
    lock = left.store.open([row_of(cell) for cell in cells])
    with pytest.raises(UserError, match="in use by"):
        merge([right.folder], left.folder)
    lock.release()
    assert not left.store.read(cells[0].key)


def test_the_command(two: tuple[Machine, Machine], cells: list[Cell], tmp_path: Path) -> None:
    two[0].run(cells[0], 0)
    folders = [str(machine.folder) for machine in two]
    outcome = CliRunner().invoke(app, ["merge", *folders, "--into", str(tmp_path / "C")])
    assert outcome.exit_code == 0, outcome.output
    assert "3 cells, 3 missing" in outcome.output
    for wrong, said in {("nowhere",): "no results here", (*folders, "--name", "x"): "There: small"}.items():
        outcome = CliRunner().invoke(app, ["merge", *wrong, "--into", str(tmp_path / "D")])
        assert said in str(outcome.exception)


def test_a_field_that_older_records_lack_is_no_contradiction(cells: list[Cell]) -> None:
    older, newer = result(cells[0], 0), result(cells[0], 0, class_accuracy=0.25)
    other = newer | {"class_accuracy": 0.5}

    def conflicts(one: Record, two: Record) -> list[str]:
        return merge_cell(cells[0].key, [(Path("A"), [one]), (Path("B"), [two])]).conflicts

    assert conflicts(older, newer) == conflicts(newer, older) == []
    [text] = conflicts(newer, other)
    assert "class_accuracy is 0.25 in A and 0.5 in B" in text
