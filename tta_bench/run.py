"""The straight line from a benchmark file to its results folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from tta_bench import cache, plan
from tta_bench.cautions import cautions
from tta_bench.checkpoint import Checkpoints
from tta_bench.errors import ConfigError, Problem, UserError
from tta_bench.exchange import Policy
from tta_bench.grid import Cell
from tta_bench.interrupt import Interrupt
from tta_bench.progress import Progress
from tta_bench.runner import Runner, chores
from tta_bench.schema import Device, RunSection
from tta_bench.store import ResultStore, cell_status, made_by_other_code
from tta_bench.writer import Writer

OVERWRITE = ("missing", "failed", "all")


@dataclass(frozen=True)
class Summary:
    """How a run ended: cells by state, and where they are."""

    folder: Path
    states: dict[str, int]
    ran: int

    @property
    def failed(self) -> int:
        return self.states.get("failed", 0)


def run(
    name: str,
    cells: Sequence[Cell],
    runner: Runner,
    results: Path,
    overwrite: str,
    progress: Progress,
    chosen: Sequence[Cell] | None = None,
    keep_stale: bool = False,
) -> Summary:
    """Run those of the chosen cells (default: all) that have no result yet; return how these stand.

    `keep_stale` accepts finished cells that were computed by other code of their plugins.
    """
    chosen = cells if chosen is None else chosen
    store = ResultStore(results, name)
    lock = store.open(cells)
    try:
        for cell in chosen:
            damage = store.repair(cell)
            if damage:
                progress.note(damage)
        if runner.policy.share and overwrite != "all":
            take_over(store, chosen, progress)
        work = pending(store, chosen, overwrite, keep_stale)
        waiting = work.waiting
        _drop_checkpoints(store, work.done)
        for note in stale_notes(store, work.stale, keep_stale):
            progress.note(note)
        if waiting:
            data = check_inputs(waiting)
            for warning in cautions(waiting, data):
                progress.note(f"Warning: {warning}")
            unwritable = cache.problem()
            if unwritable:
                progress.note(unwritable)
            anew = waiting if overwrite == "all" else work.stale
            writer = Writer(store, progress, anew, runner.policy.share)
            done = len(chosen) - len(waiting)
            with progress.running(waiting, done), Interrupt(progress.note) as stop:
                runner.run(plan.tasks(waiting, runner.policy.share), chores(waiting), writer, stop)
            if stop():
                raise KeyboardInterrupt
    finally:
        lock.release()
    states = Counter(store.status(cell) for cell in chosen)
    return Summary(store.folder, dict(states), len(waiting))


def take_over(store: ResultStore, cells: Sequence[Cell], progress: Progress) -> None:
    """Copy what other benchmarks of the results folder have computed already: recipes overlap."""
    neighbours = store.neighbours()
    origins = Counter(name for cell in cells if (name := store.take_over(cell, neighbours)))
    for name, count in origins.items():
        cells_are = "1 cell is" if count == 1 else f"{count} cells are"
        progress.note(f"{cells_are} done in {name}, and taken from there.")


def _drop_checkpoints(store: ResultStore, done: Sequence[Cell]) -> None:
    """Remove what a run leaves that is killed after a cell's last record and before its checkpoint goes."""
    checkpoints = Checkpoints(store.folder)
    for cell in done:
        checkpoints.remove(cell.key)


@dataclass(frozen=True)
class Work:
    """The cells to run, those that other code has begun or computed, and those with all their records."""

    waiting: list[Cell]
    stale: list[Cell]
    done: list[Cell]


def pending(store: ResultStore, cells: Sequence[Cell], overwrite: str, keep_stale: bool = False) -> Work:
    """The cells to run: those without a result, those that failed as well, or all.

    Results of other code count only if they are complete and to be kept. A finished cell whose description
    was lost is visited once more, to describe it.
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
    """Which plugins' code has changed since cells were computed, and what becomes of these."""
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
    """The data of the cells, by digest; raises with all that keeps data or models from being read here."""
    from tta_bench.api import Domain

    data = {c.data.digest: c.data.make() for c in {c.data.digest: c for c in cells}.values()}
    problems: dict[str, Problem] = {}
    for cell in {c.model.digest: c for c in cells}.values():
        for text in cell.model.make().problems():
            problems[text] = Problem(f"model {cell.labels.model}", text)
    for cell in {c.data.digest: c for c in cells}.values():
        for text in data[cell.data.digest].problems([Domain(*d) for d in cell.domains]):
            problems[text] = Problem(f"data {cell.data.use}", text)
    if problems:
        raise ConfigError("inputs", list(problems.values()))
    return data


def policy(section: RunSection, device: str | None = None) -> Policy:
    """What the file says about how to run, and the command line about where."""
    if device not in (None, *get_args(Device)):
        raise UserError(f'--device {device}: unknown. Use "auto", "cpu" or "cuda".')
    cell_minutes = section.cell_minutes
    return Policy(
        threads=section.threads,
        device=device or section.device,
        gpus=section.gpus,
        checkpoint_seconds=60 * section.checkpoint_minutes,
        cell_seconds=None if cell_minutes is None else 60 * cell_minutes,
        share=section.share,
    )


def make_runner(engine: str, workers: int | str, policy: Policy, address: str | None = None) -> Runner:
    """The runner of an engine's name."""
    if engine == "local":
        from tta_bench.runner import LocalRunner

        return LocalRunner(policy)
    if engine == "ray":
        from tta_bench.ray_runner import RayRunner

        return RayRunner(workers, policy, address)
    raise UserError(f'--engine {engine}: unknown. Use "ray" or "local".')
