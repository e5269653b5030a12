"""The ledger of one search: the result of every domain of every trial, and how each trial ended.

It is append-only and checksummed, in the results folder, like records. All decisions depend only on it, so a
search that was killed resumes where it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from tta_bench.storage.format import LEDGER
from tta_bench.storage.record import Record
from tta_bench.storage.store import ResultStore
from tta_bench.tune.goal import Goal

# The cost of a backward pass in forward passes: it computes two matrix products, with inputs and weights,
# where a forward pass computes one. `plan` uses the same cost.
BACKWARD = 2
Ending = Literal["complete", "early", "failed", "unsupported"]


def passes(records: list[Record]) -> int:
    """The forward passes of images that were run, without the setup of the method, as in tables."""
    ran = [r for r in records if r["status"] == "ok" and "repeats" not in r]
    return sum(r["forward_images"] + BACKWARD * r["backward_images"] for r in ran)


@dataclass
class TuneTrial:
    """One set of parameters and its results so far."""

    number: int
    params: dict[str, Any]
    code: str  # of the plugins when it began
    accuracies: dict[int, float] = field(default_factory=dict)  # by step, from 0
    spent: int = 0  # forward passes of images
    ended: Ending | None = None
    reason: str = ""

    def score(self, steps: int | None = None) -> float:
        """The mean accuracy over the first steps; by default over all."""
        return fmean(list(self.accuracies.values())[:steps])


class Ledger:
    """The trials of one goal, read from and appended to the results folder."""

    def __init__(self, store: ResultStore, goal: Goal) -> None:
        self.store, self.goal, self.key = store, goal, f"{LEDGER}{goal.cell.key}"
        self.trials: dict[int, TuneTrial] = {}
        for record in store.read(self.key):
            self._apply(record)

    @property
    def spent(self) -> int:
        """The forward passes of all trials, in this run and earlier ones."""
        return sum(trial.spent for trial in self.trials.values())

    @property
    def step_cost(self) -> int:
        """The largest mean cost of a step over all trials; 0 before the first."""
        return max((t.spent // len(t.accuracies) for t in self.trials.values() if t.accuracies), default=0)

    def best(self) -> TuneTrial | None:
        """The complete trial with the highest score; the first, if several have it."""
        complete = [trial for trial in self.trials.values() if trial.ended == "complete"]
        return max(complete, key=lambda t: (t.score(), -t.number), default=None)

    def open(self) -> list[int]:
        """The trials that have begun and not ended."""
        return [number for number, trial in self.trials.items() if trial.ended is None]

    def begin(self, number: int, params: dict[str, Any], code: str) -> None:
        """Record that a new trial begins."""
        self._write({"event": "begin", "number": number, "params": params, "code": code})

    def step(self, number: int, step: int, accuracy: float, spent: int) -> None:
        """Record that a trial has finished a domain."""
        event = {"event": "step", "number": number, "step": step}
        self._write(event | {"accuracy": accuracy, "spent": spent})

    def end(self, number: int, how: Ending, reason: str = "") -> None:
        """Record that a trial has ended."""
        self._write({"event": "end", "number": number, "how": how, "reason": reason})

    def _write(self, event: Record) -> None:
        record = {"key": self.key} | event
        self.store.append(self.key, [record])
        self._apply(record)

    def _apply(self, record: Record) -> None:
        number = record["number"]
        if record["event"] != "begin" and number not in self.trials:  # the line of its beginning is damaged
            return
        if record["event"] == "begin":
            self.trials[number] = TuneTrial(number, record["params"], record["code"])
        elif record["event"] == "step":
            # A method without saved state repeats a domain after a crash, which costs budget again.
            self.trials[number].accuracies[record["step"]] = record["accuracy"]
            self.trials[number].spent += record["spent"]
        else:
            self.trials[number].ended, self.trials[number].reason = record["how"], record["reason"]
