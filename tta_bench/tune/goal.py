"""What is tuned: one method on one quantised model, on corruptions that no table uses."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from tta_bench import grid
from tta_bench.config import Benchmark, PluginChoice
from tta_bench.config.schema import TuneSection
from tta_bench.corruptions.sets import IMAGENET_C_15
from tta_bench.errors import ConfigError, Problem
from tta_bench.grid import Cell
from tta_bench.planning.sharing import resolve
from tta_bench.plugins import registry
from tta_bench.plugins.search_space import Spaces


@dataclass(frozen=True)
class Goal:
    """One method on one quantised model; trial 0 has the parameters without tuning."""

    cell: Cell
    given: dict[str, Any]  # parameters that the file sets, which are not searched

    @property
    def name(self) -> str:
        """Its name in progress messages and tables."""
        labels = self.cell.labels
        return f"{labels.method} on {labels.model} {self.cell.bits}"

    @property
    def target(self) -> str:
        """The name of the model in presets."""
        return self.cell.model.make().title() or self.cell.model.use

    @property
    def spaces(self) -> Spaces:
        """The search spaces of the parameters that the file does not set."""
        declared: Spaces = registry.load("methods", self.cell.method.use).search_space
        return {name: space for name, space in declared.items() if name not in self.given}

    @property
    def steps(self) -> int:
        """The number of domains of a trial over all rounds; rounds that repeat count once."""
        return resolve(self.cell).positions

    def params(self, number: int) -> dict[str, Any]:
        """The searched parameters of a trial, the same in every run of this search."""
        if number == 0:
            return {name: self.cell.method.params[name] for name in self.spaces}
        words = hashlib.sha256(f"{self.cell.key}/{number}".encode()).digest()
        rng = np.random.default_rng(np.frombuffer(words, np.uint32))
        return {name: space.sample(rng) for name, space in self.spaces.items()}

    def trial(self, number: int) -> Cell:
        """The cell of a trial."""
        params, method = self.params(number), self.cell.method
        shown = ", ".join(f"{name}={value}" for name, value in params.items())
        label = f"{self.cell.labels.method} ({shown})"
        cell = dataclasses.replace(
            self.cell,
            method=dataclasses.replace(method, params=method.params | params),
            labels=dataclasses.replace(self.cell.labels, method=label),
        )
        return cell.with_key()


def goals(benchmark: Benchmark, file: str) -> tuple[list[Goal], list[str]]:
    """All goals of a benchmark, and the names of methods without parameters to tune."""
    cells = grid.expand(held_out(benchmark, file), file)
    by_name: dict[str, PluginChoice] = {choice.name: choice for choice in benchmark.methods}
    found = [Goal(cell, dict(by_name[cell.labels.method].params)) for cell in cells]
    idle = dict.fromkeys(goal.cell.labels.method for goal in found if not goal.spaces)
    return [goal for goal in found if goal.spaces], list(idle)


def held_out(benchmark: Benchmark, file: str) -> Benchmark:
    """The benchmark with the stream and seed for tuning; raises an error if tables use any of that data.

    Without a `tune` section, the stream of the file is used, so that a file can be written for tuning only.
    """
    tune = benchmark.tune or TuneSection(corruptions=benchmark.stream.corruptions)
    place = "stream.corruptions" if benchmark.tune is None else "tune.corruptions"
    problems = []
    if tested := [name for name in tune.corruptions if name in IMAGENET_C_15]:
        text = f"{', '.join(tested)}: test corruptions cannot be used for tuning."
        remedy = "Use held-out-4." if benchmark.tune else "Add `tune: {corruptions: held-out-4}` to the file."
        problems.append(Problem(place, f"{text} {remedy}"))
    if tune.seed in benchmark.seeds:
        text = f"{tune.seed} is among the benchmark's own seeds. Choose another."
        problems.append(Problem("tune.seed", text))
    for name in ("severity", "batch_size", "domain_order"):
        if len(getattr(benchmark.stream, name)) > 1:
            problems.append(Problem(f"stream.{name}", "tuning takes one value. Set it with -o."))
    if [choice.use for choice in benchmark.scenarios] != ["continual"]:
        text = "tuning runs on continual streams only. Set it with -o stream.scenario=continual."
        problems.append(Problem("stream.scenario", text))
    if problems:
        raise ConfigError(file, problems)
    changes = {"corruptions": tune.corruptions, "rounds": tune.rounds}
    if tune.limit is not None:
        changes["limit"] = tune.limit
    stream = benchmark.stream.model_copy(update=changes)
    return dataclasses.replace(benchmark, stream=stream, seeds=(tune.seed,), tune=tune)
