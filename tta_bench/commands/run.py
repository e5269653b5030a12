"""Run the cells of a benchmark that have no result yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from tta_bench.commands.inputs import Source, grid_of
from tta_bench.commands.results import Results
from tta_bench.commands.results import results as results_of
from tta_bench.errors import UserError
from tta_bench.execution import run as running
from tta_bench.execution.progress import RunProgress


@dataclass(frozen=True, repr=False)
class RunSummary:
    """How a run ended: the number of cells in each state, how many ran, and the results folder."""

    name: str
    folder: Path
    states: dict[str, int]
    ran: int

    @property
    def results(self) -> Results:
        """The results of the benchmark."""
        return results_of(self.folder.parent, self.name)

    @property
    def failed(self) -> bool:
        """Whether any cell has failed; `results.status()` shows why."""
        return "failed" in self.states

    def __repr__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        ran = f"ran {self.ran}" if self.ran else "nothing left to run"
        return f"{self.name}: {ran}; {states}. Results in {self.folder}."


def run(
    source: Source,
    *,
    results: str | PathLike[str] = "results",
    limit: int | None = None,
    engine: str | None = None,
    workers: int | None = None,
    device: str | None = None,
    only: Sequence[str] | None = None,
    override: Sequence[str] = (),
    micro: bool = False,
    overwrite: str = "missing",
    ray_address: str | None = None,
    presets: str | PathLike[str] | None = None,
    keep_stale: bool = False,
    quiet: bool = False,
) -> RunSummary:
    """Run the cells that have no result yet, and return how the run ended.

    The parameters are the options of `tta-bench run`. An interrupted run continues where it stopped.
    """
    if overwrite not in running.OVERWRITE:
        raise UserError(f"--overwrite {overwrite}: unknown. Use one of {', '.join(running.OVERWRITE)}.")
    grid = grid_of(
        source, only=only, download=True, override=override, limit=limit, micro=micro, presets=presets
    )
    section = grid.benchmark.run
    runner = running.make_runner(
        engine or section.engine, workers or section.workers, running.policy(section, device), ray_address
    )
    name, folder = grid.benchmark.name, Path(results)
    progress = RunProgress(quiet)
    for text in grid.benchmark.reduced:
        progress.note(f"--micro: {text}.")
    ended = running.run(name, grid.cells, runner, folder, overwrite, progress, grid.chosen, keep_stale)
    return RunSummary(name, ended.folder, ended.states, ended.ran)
