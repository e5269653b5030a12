"""The straight line from a benchmark file to its results folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from tta_bench import plan
from tta_bench.errors import ConfigError, Problem, UserError
from tta_bench.exchange import Policy
from tta_bench.grid import Cell
from tta_bench.interrupt import Interrupt
from tta_bench.progress import Progress
from tta_bench.runner import Runner, chores
from tta_bench.schema import Device, RunSection
from tta_bench.store import ResultStore
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
) -> Summary:
    """Run those of the chosen cells (default: all) that have no result yet; return how these stand."""
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
        waiting = pending(store, chosen, overwrite)
        if waiting:
            check_inputs(waiting)
            writer = Writer(store, progress, anew=waiting if overwrite == "all" else [])
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


def pending(store: ResultStore, cells: Sequence[Cell], overwrite: str) -> list[Cell]:
    """The cells to run: those without a result, those that failed as well, or all."""
    redo = {"missing": {"missing"}, "failed": {"missing", "failed"}}.get(overwrite)
    return [cell for cell in cells if redo is None or store.status(cell) in redo]


def check_inputs(cells: Sequence[Cell]) -> None:
    """Raise with everything that keeps models or data from being read here."""
    from tta_bench.api import Domain

    problems: dict[str, Problem] = {}
    for cell in {str(c.model): c for c in cells}.values():
        for text in cell.model.make("models").problems():
            problems[text] = Problem(f"model {cell.labels.model}", text)
    for cell in {str(c.data): c for c in cells}.values():
        for text in cell.data.make("data").problems([Domain(*d) for d in cell.domains]):
            problems[text] = Problem(f"data {cell.data.use}", text)
    if problems:
        raise ConfigError("inputs", list(problems.values()))


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
