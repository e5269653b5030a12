"""`tta-bench tune FILE` from its arguments to its files; the command line only parses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tta_bench import config
from tta_bench import run as running
from tta_bench.config import Benchmark
from tta_bench.errors import ConfigError, Problem, UserError
from tta_bench.grid import Cell
from tta_bench.interrupt import Interrupt
from tta_bench.progress import Progress
from tta_bench.ray_runner import RayRunner
from tta_bench.store import Record, ResultStore, describe, write_atomically
from tta_bench.tune import presets_file, sensitivity
from tta_bench.tune.goal import Goal, goals, held_out
from tta_bench.tune.presets_file import Found
from tta_bench.tune.search import prepare, tune
from tta_bench.writer import Writer


class Silent(Progress):
    """Trials are told of one by one, as they end; a bar over cells would not know how many there will be."""

    def started(self, cell: Cell, kept: int) -> None:
        pass

    def records(self, records: list[Record]) -> None:
        pass


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    benchmark: Benchmark
    file: str
    results: Path
    output: Path
    budget: int | None  # None: the file's
    workers: int | None
    address: str | None
    chosen: Sequence[str]  # of --only
    quiet: bool


def run(asked: Request) -> str:
    """Search for everything the file names; the sensitivity table as text."""
    section = held_out(asked.benchmark, asked.file).tune  # refuses before anything is downloaded
    config.fetch(asked.benchmark)
    wanted, idle = goals(asked.benchmark, asked.file)
    assert section is not None
    budget = asked.budget or section.budget
    wanted = _chosen(wanted, asked)
    if not asked.output.parent.is_dir():
        missing = f"{asked.output}: the folder {asked.output.parent} does not exist."
        raise UserError(f"{missing} Make it, or choose another --output.")
    running.check_inputs([goal.cell for goal in wanted])
    store = ResultStore(asked.results, f"{asked.benchmark.name}.tune")
    progress = Silent(asked.quiet)
    if idle:
        progress.note(f"Nothing to search for: {', '.join(idle)}.")
    lock = store.open([])
    try:
        found = _search(wanted, budget, store, progress, asked)
        for note in store.damage.values():
            progress.note(note)
        cells = [each.goal.trial(number) for each in found for number in each.ledger.trials]
        store.write_manifest([describe(cell) for cell in cells])
        body = presets_file.content(asked.benchmark.name, budget, found)
        table = sensitivity.lines(found)
        write_atomically(store.folder / "sensitivity.csv", sensitivity.to_csv(table).encode())
    finally:
        lock.release()
    presets_file.write(asked.output, body)
    return sensitivity.to_text(table)


def _chosen(wanted: list[Goal], asked: Request) -> list[Goal]:
    """The goals that fit --only; an error if nothing is left."""
    from tta_bench import grid

    cells = [goal.cell for goal in wanted]
    kept = {cell.key for cell in grid.only(cells, asked.chosen)}
    wanted = [goal for goal in wanted if goal.cell.key in kept]
    if not wanted:
        text = (
            "no method has a search space, or all of it is given. `tta-bench list methods --long` shows them."
        )
        raise ConfigError(asked.file, [Problem("methods", text)])
    return wanted


def _search(
    wanted: Sequence[Goal], budget: int, store: ResultStore, progress: Progress, asked: Request
) -> list[Found]:
    """All searches, with as many trials at once as there are workers."""
    section = asked.benchmark.run
    policy = running.policy(section)
    workers = asked.workers or (None if section.workers == "auto" else int(section.workers))
    with Interrupt(progress.note) as stop:
        writer = Writer(store, progress, anew=[])
        searches = [prepare(goal, budget, writer, stop, progress.note) for goal in wanted]
        ray = RayRunner(workers or "auto", policy, asked.address)
        ray.connect()
        try:
            tune(searches, policy, workers)
        finally:
            ray.ray.shutdown()
        if stop():
            raise KeyboardInterrupt
    return [Found(search.goal, search.ledger) for search in searches]
