"""Nothing is computed twice, and nothing comes out otherwise for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tta_bench import config, grid
from tta_bench.cli import app
from tta_bench.execution.executor import Executor
from tta_bench.execution.local import LocalRunner
from tta_bench.execution.messages import Delivery, RunPolicy
from tta_bench.execution.progress import RunProgress
from tta_bench.execution.recorder import ResultRecorder, start_of
from tta_bench.planning import tasks as plan
from tta_bench.planning.sharing import resolve
from tta_bench.planning.tasks import Task, split, tasks
from tta_bench.storage.store import ResultStore

Write = Callable[..., Path]
FORGETFUL = [
    "source",
    "lame",
    {"use": "t3a", "name": "T3A-r", "reset": "domain"},
    {"use": "zoa", "name": "ZOA-r", "reset": "domain"},
]
UNTIMED = ("--columns", "ece")  # without ms/image, which differs from run to run
METHODS = [*FORGETFUL, "t3a", "shift", "zoa"]
THREE = {"corruptions": ["gaussian_noise", "fog", "contrast"], "rounds": 2, "batch_size": 16, "limit": 40}


pytestmark = pytest.mark.usefixtures("no_bytes")


def invoke(*arguments: str | Path) -> str:
    outcome = CliRunner().invoke(app, [*map(str, arguments)])
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def numbers(deliveries: Iterable[Delivery]) -> dict[Any, Any]:
    """All that was found, by where it was; not how long it took, nor whether it was found by repetition."""
    records = [r for delivery in deliveries for r in delivery.records]
    plain = [{k: v for k, v in r.items() if k not in ("seconds", "repeats")} for r in records]
    found = {(r["key"], r.get("round"), r.get("corruption")): r for r in plain}
    assert len(found) == len(plain), "every record once"
    return found


@pytest.mark.parametrize("model", ["vit-micro", "resnet-micro"])
def test_tables_and_records_are_the_same_with_and_without_sharing(
    write_yaml: Write, tmp_path: Path, model: str
) -> None:
    file = write_yaml(models=[model], methods=["bn-adapt", *METHODS], quantizers=["uniform"], stream=THREE)
    kept, tables = [], []
    for share in ("true", "false"):
        results = tmp_path / share
        invoke("run", file, "-o", f"run.share={share}", "--results", results)
        store = ResultStore(results, "small")
        kept.append(
            numbers(Delivery(cell.key, store.read(cell.key)) for cell in grid.expand(config.load(file)))
        )
        tables.append(
            [
                invoke("table", "--results", results, "--layout", layout, "--format", "csv", *UNTIMED)
                for layout in ("long-term", "per-corruption", "cost")
            ]
        )
    assert kept[0] == kept[1]
    assert tables[0] == tables[1]


def test_a_cell_of_two_benchmarks_is_computed_once(write_yaml: Write, tmp_path: Path) -> None:
    """Same key, same numbers: the neighbour's records are copied, unless everything is wanted anew."""
    common = {"quantizers": ["uniform"], "stream": THREE}

    def run(name: str, methods: list[Any], *flags: str) -> tuple[str, dict[str, list[Any]]]:
        file = write_yaml(name=name, methods=methods, **common)
        outcome = CliRunner().invoke(app, ["run", str(file), "--results", str(tmp_path), *flags])
        assert outcome.exit_code == 0, outcome.output
        store = ResultStore(tmp_path, name)
        return outcome.output, {c.key: store.read(c.key) for c in grid.expand(config.load(file))}

    _, first = run("one", ["source", {"use": "shift", "name": "under another name"}])
    said, second = run("two", ["t3a", "source", "shift"])
    assert "2 cells are done in one, and taken from there." in said
    assert "two: ran 1; 3 done." in said
    assert {key: second[key] for key in first} == first
    said, third = run("three", ["source"], "-o", "run.share=false")
    assert "taken" not in said
    assert next(iter(third.values())) != second[next(iter(third))], "the seconds, at least, are other ones"
    said, _ = run("two", ["t3a", "source", "shift"], "--overwrite", "all")
    assert "taken" not in said
    assert "two: ran 3; 3 done." in said


def test_what_forgets_is_spread_and_what_remembers_is_not(write_yaml: Write) -> None:
    cells = grid.expand(config.load(write_yaml(methods=METHODS, quantizers=["uniform"], stream=THREE)))
    by_name = {cell.labels.method: cell for cell in cells}
    zoa, resetting = Task((resolve(cells[-1]),)), Task((resolve(cells[3]),))
    assert split([zoa], 8) == [zoa]
    pieces = split([resetting], 8)
    assert sorted(min(piece.segments or ()) for piece in pieces) == [0, 1, 2]
    assert {d for piece in pieces for d in piece.segments or ()} == {0, 1, 2}
    assert split([resetting], 1) == [resetting]
    assert split([zoa, resetting], 2)[0] == zoa, "the longest first"
    many = [Task((resolve(by_name["source"]),))] * 100
    assert split(many, 2) == many, "each piece is set up anew: none more than are needed"
    assert split([], 2) == []


def test_pieces_together_are_the_whole(write_yaml: Write) -> None:
    file = write_yaml(models=["vit-micro"], methods=FORGETFUL, quantizers=["uniform"], stream=THREE)
    cells = grid.expand(config.load(file))
    executor = Executor()
    whole = [delivery for task in tasks(cells) for delivery in executor.run(task.cells)]
    pieces = [
        replace(task, segments=part) for task in tasks(cells) for part in (frozenset({0, 2}), frozenset({1}))
    ]
    parts = [
        delivery
        for task in pieces
        for delivery in executor.run(
            task.cells, [start_of(cell, [], None, task.segments)[0] for cell in task.cells]
        )
    ]
    assert numbers(parts) == numbers(whole)
    described = {d.key for d in parts if d.description is not None}
    assert described == {cell.key for cell in cells}


def test_a_piece_that_starts_late_does_not_hide_the_failure_of_another(
    write_yaml: Write, tmp_path: Path
) -> None:
    cells = grid.expand(config.load(write_yaml(methods=["source"], quantizers=["fp32"])))
    store, (cell,) = ResultStore(tmp_path, "small"), cells
    lock, progress = store.open([grid.row_of(cell)]), RunProgress(quiet=True)
    with progress.running(cells, 0):
        writer = ResultRecorder(store, progress, [])
        writer.started(Task((resolve(cell),), frozenset({0})))
        failure = {"key": cell.key, "status": "failed", "code": cell.code, "reason": "out of luck"}
        writer.delivered(Delivery(cell.key, [failure]))
        writer.started(Task((resolve(cell),), frozenset({1})))
    lock.release()
    assert store.status(cell) == "failed"


def test_the_local_runner_runs_only_the_domains_of_a_task(write_yaml: Write, tmp_path: Path) -> None:
    """Before: it ran all of them, whatever the task said."""
    cells = grid.expand(config.load(write_yaml(methods=["source"], quantizers=["fp32"], stream=THREE)))
    store, progress = ResultStore(tmp_path, "small"), RunProgress(quiet=True)
    lock, task = store.open([grid.row_of(cells[0])]), Task((resolve(cells[0]),), frozenset({1}))
    with progress.running(cells, 0):
        LocalRunner(RunPolicy()).run([task], [], ResultRecorder(store, progress, []), lambda: False)
    lock.release()
    found = [(record["round"], record["corruption"]) for record in store.read(cells[0].key)]
    assert found == [(1, "fog"), (2, "fog")]


@pytest.mark.slow
def test_two_workers_share_the_domains_of_one_cell(write_yaml: Write, tmp_path: Path) -> None:
    file = write_yaml(methods=[{"use": "zoa", "reset": "domain"}], quantizers=["uniform"], stream=THREE)
    invoke("run", file, "--engine", "local", "--results", tmp_path / "one")
    invoke("run", file, "--engine", "ray", "--workers", "2", "--results", tmp_path / "two")
    one, two = (
        invoke("table", "--results", tmp_path / name, "--layout", "per-corruption", "--format", "csv")
        for name in ("one", "two")
    )
    assert one == two


@pytest.mark.slow
def test_tables_are_the_same_compiled_and_eager(write_yaml: Write, tmp_path: Path) -> None:
    file = write_yaml(
        models=["vit-micro", "vim-micro"], methods=["shift", "zoa"], quantizers=["uniform"], stream=THREE
    )
    tables = []
    for compiled in ("1", "0"):
        command = [
            sys.executable,
            "-m",
            "tta_bench.cli",
            "run",
            str(file),
            "--results",
            str(tmp_path / compiled),
        ]
        subprocess.run(command, env=os.environ | {"TTA_BENCH_COMPILE": compiled}, check=True, timeout=200)
        tables.append(invoke("table", "--results", tmp_path / compiled, "--format", "csv", *UNTIMED))
    assert tables[0] == tables[1]


def test_six_methods_cost_little_more_than_half(write_yaml: Write) -> None:
    """The grid of which the documentation gives the passes."""
    methods = ["source", "t3a", "lame", "shift", {"use": "foa", "k": 2}, "zoa"]
    stream = {"corruptions": "imagenet-c-15", "rounds": 10, "batch_size": 64}
    cells = grid.expand(
        config.load(write_yaml(models=["vit-micro"], methods=methods, quantizers=["ptq4vit"], stream=stream))
    )
    cost = plan.passes(cells)
    assert cost.executed <= 0.55 * cost.naive
    assert cost.naive == 15 * 32 * 10 * (1 + 1 + 1 + 1 + 2 + 2)
