"""`tta-bench tune FILE`: runs the searches and writes their files; the command line only parses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tta_bench import config
from tta_bench.config import Benchmark
from tta_bench.errors import ConfigError, Problem, UserError
from tta_bench.execution import run as running
from tta_bench.execution.interrupt import Interrupt
from tta_bench.execution.progress import RunProgress
from tta_bench.execution.ray.driver import RayRunner
from tta_bench.execution.recorder import ResultRecorder
from tta_bench.files import write_atomically
from tta_bench.grid import Cell, only, row_of
from tta_bench.storage.record import Record
from tta_bench.storage.store import ResultStore
from tta_bench.tune import presets_file, sensitivity
from tta_bench.tune.goal import Goal, goals, held_out
from tta_bench.tune.ledger import Ledger
from tta_bench.tune.search import prepare, tune


class Silent(RunProgress):
    """Reports only notes, one per finished trial: a progress bar would not know the number of cells."""

    def task_started(self) -> None:
        pass

    def started(self, cell: Cell, kept: int) -> None:
        pass

    def records(self, records: list[Record]) -> None:
        pass


@dataclass(frozen=True)
class TuneRequest:
    """The arguments of the command."""

    benchmark: Benchmark
    file: str
    results: Path
    output: Path
    budget: int | None  # None: the budget in the file
    workers: int | None
    address: str | None
    chosen: Sequence[str]  # of --only
    quiet: bool


def run(asked: TuneRequest) -> str:
    """Run all searches and write the presets file; returns the sensitivity table as text."""
    section = held_out(asked.benchmark, asked.file).tune  # checked before anything is downloaded
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
        cells = [ledger.goal.trial(number) for ledger in found for number in ledger.trials]
        store.write_manifest([row_of(cell) for cell in cells])
        body = presets_file.content(asked.benchmark.name, budget, found)
        table = sensitivity.table(found)
        write_atomically(store.folder / "sensitivity.csv", sensitivity.to_csv(table).encode())
    finally:
        lock.release()
    presets_file.write(asked.output, body)
    return sensitivity.to_text(table)


def _chosen(wanted: list[Goal], asked: TuneRequest) -> list[Goal]:
    """The goals selected by --only; raises an error if there are none."""
    cells = [goal.cell for goal in wanted]
    kept = {cell.key for cell in only(cells, asked.chosen)}
    wanted = [goal for goal in wanted if goal.cell.key in kept]
    if not wanted:
        text = (
            "no method has a parameter to search: none has a search space, or the file sets all of it. "
            "`tta-bench list methods --long` shows search spaces."
        )
        raise ConfigError(asked.file, [Problem("methods", text)])
    return wanted


def _search(
    wanted: Sequence[Goal], budget: int, store: ResultStore, progress: RunProgress, asked: TuneRequest
) -> list[Ledger]:
    """Run all searches, with as many trials at a time as there are workers."""
    section = asked.benchmark.run
    policy = running.policy(section)
    workers = asked.workers or (None if section.workers == "auto" else int(section.workers))
    with Interrupt(progress.note) as stop:
        writer = ResultRecorder(store, progress, anew=[])
        searches = [prepare(goal, budget, writer, stop, progress.note) for goal in wanted]
        plugins = [plugin for goal in wanted for plugin in goal.cell.plugins]
        with RayRunner(workers or "auto", policy, asked.address).connected(plugins):
            tune(searches, policy, workers)
        stop.check()
    return [search.ledger for search in searches]
