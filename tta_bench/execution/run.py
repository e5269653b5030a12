"""Run the pending cells of a benchmark: check inputs, make tasks, give them to a runner, record results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from tta_bench.cache import entries
from tta_bench.config.schema import Device, RunSection
from tta_bench.errors import ConfigError, Problem, UserError
from tta_bench.execution.interrupt import Interrupt
from tta_bench.execution.messages import Runner, RunPolicy, preparations
from tta_bench.execution.progress import RunProgress
from tta_bench.execution.recorder import ResultRecorder
from tta_bench.grid import Cell, row_of
from tta_bench.planning.cautions import cautions
from tta_bench.planning.tasks import tasks
from tta_bench.storage.checkpoints import Checkpoints
from tta_bench.storage.record import cell_status
from tta_bench.storage.store import ResultStore, made_by_other_code

if TYPE_CHECKING:
    from tta_bench.api import Domain

OVERWRITE = ("missing", "failed", "all")


@dataclass(frozen=True)
class Summary:
    """How a run ended: the number of cells in each state, and the results folder."""

    folder: Path
    states: dict[str, int]
    ran: int


def run(
    name: str,
    cells: Sequence[Cell],
    runner: Runner,
    results: Path,
    overwrite: str,
    progress: RunProgress,
    chosen: Sequence[Cell] | None = None,
    keep_stale: bool = False,
) -> Summary:
    """Run those of the chosen cells (default: all) that have no result yet; return their states.

    `keep_stale` accepts finished cells that were computed by an older version of their plugins' code.
    """
    chosen = cells if chosen is None else chosen
    store = ResultStore(results, name)
    lock = store.open([row_of(cell) for cell in cells])
    try:
        for cell in chosen:
            damage = store.repair(cell)
            if damage:
                progress.note(damage)
        if runner.policy.share and overwrite != "all":
            take_over(store, chosen, progress)
        work = pending(store, chosen, overwrite, keep_stale)
        waiting = work.waiting
        for cell in work.done:  # checkpoints left by a run that was killed right after the last record
            Checkpoints(store.folder).remove(cell.key)
        for note in stale_notes(store, work.stale, keep_stale):
            progress.note(note)
        if waiting:
            data = check_inputs(waiting)
            for warning in cautions(waiting, data):
                progress.note(f"Warning: {warning}")
            unwritable = entries.problem()
            if unwritable:
                progress.note(unwritable)
            anew = waiting if overwrite == "all" else work.stale
            recorder = ResultRecorder(store, progress, anew)
            done = len(chosen) - len(waiting)
            with progress.running(waiting, done, runner.policy.share), Interrupt(progress.note) as stop:
                runner.run(tasks(waiting, runner.policy.share), preparations(waiting), recorder, stop)
            stop.check()
    finally:
        lock.release()
    states = Counter(store.status(cell) for cell in chosen)
    return Summary(store.folder, dict(states), len(waiting))


def take_over(store: ResultStore, cells: Sequence[Cell], progress: RunProgress) -> None:
    """Copy cells that another benchmark in the same results folder has already computed: recipes overlap."""
    neighbours = store.neighbours()
    origins = Counter(name for cell in cells if (name := store.take_over(cell, neighbours)))
    for name, count in origins.items():
        cells_are = "1 cell is" if count == 1 else f"{count} cells are"
        progress.note(f"{cells_are} done in {name}, and taken from there.")


@dataclass(frozen=True)
class Work:
    """Cells that must run, cells with records of older plugin code, and cells that have all their records."""

    waiting: list[Cell]
    stale: list[Cell]
    done: list[Cell]


def pending(store: ResultStore, cells: Sequence[Cell], overwrite: str, keep_stale: bool = False) -> Work:
    """Which cells to run: those without a result, also those that failed, or all.

    Results of older plugin code count only if they are complete and `keep_stale` is set. A finished cell
    whose description was lost runs once more, only to describe it.
    """
    redo = {"missing": {"missing"}, "failed": {"missing", "failed"}}.get(overwrite)
    work = Work([], [], [])
    for cell in cells:
        records = store.read(cell.key)
        stale = made_by_other_code(records, cell)
        state = cell_status(records, cell.records_expected)
        lost = state == "done" and store.description(cell.key) is None
        kept = stale and keep_stale and state in ("done", "unsupported")
        if stale:
            work.stale.append(cell)
        if redo is None or state in redo or (not kept and (stale or lost)):
            work.waiting.append(cell)
        elif state == "done":
            work.done.append(cell)
    return work


def stale_notes(store: ResultStore, cells: Sequence[Cell], kept: bool) -> list[str]:
    """Messages on plugins whose code has changed since cells were computed, with the consequence."""
    changed: Counter[str] = Counter()
    for cell in cells:
        known = (store.description(cell.key) or {}).get("code", {})
        changed.update([plugin.label for plugin in cell.plugins if known.get(plugin.label) != plugin.code])
    again = "They are computed again; --keep-stale keeps finished ones."
    remedy = "Finished ones are kept." if kept else again
    return [
        f"The code of {name} has changed since {count} cell{'s' * (count != 1)} were computed. {remedy}"
        for name, count in sorted(changed.items())
    ]


def check_inputs(cells: Sequence[Cell]) -> dict[str, Any]:
    """The data of the cells, by digest; raises ConfigError with all problems of reading data or models."""
    data = {c.data.digest: c.data.make() for c in {c.data.digest: c for c in cells}.values()}
    problems: dict[str, Problem] = {}
    for cell in {c.model.digest: c for c in cells}.values():
        for text in cell.model.make().problems():
            problems[text] = Problem(f"model {cell.labels.model}", text)
    visited: dict[str, dict[Domain, None]] = defaultdict(dict)
    for cell in cells:
        visited[cell.data.digest] |= dict.fromkeys(cell.visited)
    for cell in {c.data.digest: c for c in cells}.values():
        for text in data[cell.data.digest].problems(list(visited[cell.data.digest])):
            problems[text] = Problem(f"data {cell.data.use}", text)
    if problems:
        raise ConfigError("inputs", list(problems.values()))
    return data


def policy(section: RunSection, device: str | None = None) -> RunPolicy:
    """The policy from the run section of a file and the `--device` option."""
    if device not in (None, *get_args(Device)):
        raise UserError(f'--device {device}: unknown. Use "auto", "cpu" or "cuda".')
    cell_minutes = section.cell_minutes
    return RunPolicy(
        threads=section.threads,
        device=device or section.device,
        gpus=section.gpus,
        checkpoint_seconds=60 * section.checkpoint_minutes,
        cell_seconds=None if cell_minutes is None else 60 * cell_minutes,
        share=section.share,
    )


def make_runner(engine: str, workers: int | str, policy: RunPolicy, address: str | None = None) -> Runner:
    """The runner for an engine's name."""
    if engine == "local":
        if address is not None:
            problem = f"--ray-address {address}: the engine is local, which uses no cluster."
            raise UserError(f"{problem} Add --engine ray, or leave the address out.")
        from tta_bench.execution.local import LocalRunner

        return LocalRunner(policy)
    if engine == "ray":
        from tta_bench.execution.ray.driver import RayRunner

        return RayRunner(workers, policy, address)
    raise UserError(f'--engine {engine}: unknown. Use "ray" or "local".')
