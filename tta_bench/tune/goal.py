"""What is tuned: one method on one quantised model, over corruptions that no table will ever show."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from tta_bench import grid, registry
from tta_bench.config import Benchmark, Choice
from tta_bench.corruptions.sets import IMAGENET_C_15
from tta_bench.errors import ConfigError, Problem
from tta_bench.grid import Cell
from tta_bench.plan import make_method, repeats
from tta_bench.schema import TuneSection
from tta_bench.space import Spaces


@dataclass(frozen=True)
class Goal:
    """One method on one quantised model; trial 0 is what would run without any tuning."""

    cell: Cell
    given: dict[str, Any]  # what the file fixes, and so is not searched

    @property
    def name(self) -> str:
        """What progress and tables call it."""
        labels = self.cell.labels
        return f"{labels.method} on {labels.model} {self.cell.bits}"

    @property
    def target(self) -> str:
        """The name by which presets know the model."""
        return self.cell.model.make().title() or self.cell.model.use

    @property
    def spaces(self) -> Spaces:
        """What is searched."""
        declared: Spaces = registry.load("methods", self.cell.method.use).search_space
        return {name: space for name, space in declared.items() if name not in self.given}

    @property
    def steps(self) -> int:
        """How many domains a trial is asked about; rounds that only repeat count once."""
        rounds = 1 if repeats(self.cell, make_method(self.cell)) else self.cell.rounds
        return rounds * len(self.cell.domains)

    def params(self, number: int) -> dict[str, Any]:
        """The searched parameters of a trial: the same in every run of the same search."""
        if number == 0:
            return {name: self.cell.method.params[name] for name in self.spaces}
        words = hashlib.sha256(f"{self.cell.key}/{number}".encode()).digest()
        rng = np.random.default_rng(np.frombuffer(words, np.uint32))
        return {name: space.sample(rng) for name, space in self.spaces.items()}

    def trial(self, number: int) -> Cell:
        """The cell of a trial."""
        params, method = self.params(number), self.cell.method
        told = ", ".join(f"{name}={value}" for name, value in params.items())
        label = f"{self.cell.labels.method} ({told})"
        cell = dataclasses.replace(
            self.cell,
            method=dataclasses.replace(method, params=method.params | params),
            labels=dataclasses.replace(self.cell.labels, method=label),
        )
        return cell.with_key()


def goals(benchmark: Benchmark, file: str) -> tuple[list[Goal], list[str]]:
    """Everything there is to tune, and the names of methods that have nothing to be tuned."""
    cells = grid.expand(held_out(benchmark, file), file)
    by_name: dict[str, Choice] = {choice.name: choice for choice in benchmark.methods}
    found = [Goal(cell, dict(by_name[cell.labels.method].params)) for cell in cells]
    idle = dict.fromkeys(goal.cell.labels.method for goal in found if not goal.spaces)
    return [goal for goal in found if goal.spaces], list(idle)


def held_out(benchmark: Benchmark, file: str) -> Benchmark:
    """The benchmark as tuning sees it; refused if that would be anything that the tables are made of.

    A file without a `tune` section is tuned on its own stream, so that one may be written for tuning alone.
    """
    tune = benchmark.tune or TuneSection(corruptions=benchmark.stream.corruptions)
    place = "stream.corruptions" if benchmark.tune is None else "tune.corruptions"
    problems = []
    if tested := [name for name in tune.corruptions if name in IMAGENET_C_15]:
        text = f"{', '.join(tested)}: what tables are made of is not tuned on."
        remedy = "Use held-out-4." if benchmark.tune else "Add `tune: {corruptions: held-out-4}` to the file."
        problems.append(Problem(place, f"{text} {remedy}"))
    if tune.seed in benchmark.seeds:
        text = f"{tune.seed} is among the benchmark's own seeds. Choose another."
        problems.append(Problem("tune.seed", text))
    for name in ("severity", "batch_size"):
        if len(getattr(benchmark.stream, name)) > 1:
            problems.append(Problem(f"stream.{name}", "tuning takes one value. Set it with -o."))
    if problems:
        raise ConfigError(file, problems)
    changes = {"corruptions": tune.corruptions, "rounds": tune.rounds}
    if tune.limit is not None:
        changes["limit"] = tune.limit
    stream = benchmark.stream.model_copy(update=changes)
    return dataclasses.replace(benchmark, stream=stream, seeds=(tune.seed,), tune=tune)
