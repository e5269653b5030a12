"""The book of one search: every domain that any trial has been through, and how each trial ended.

Append-only and checksummed, in the results folder as records are. All decisions are made from it, so that a
search that was killed goes on as if nothing had happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from tta_bench.result_format import LEDGER
from tta_bench.store import Record, ResultStore
from tta_bench.tune.goal import Goal

# What a backward pass counts in forward passes: it computes two products where a forward computes one,
# by inputs and by weights; `plan` counts it alike.
BACKWARD = 2
Ending = Literal["complete", "early", "failed", "unsupported"]


def passes(records: list[Record]) -> int:
    """Images forward in what was really run; setting a method up is not counted, as in tables."""
    ran = [r for r in records if r["status"] == "ok" and "repeats" not in r]
    return sum(r["forward_images"] + BACKWARD * r["backward_images"] for r in ran)


@dataclass
class Trial:
    """One set of parameters and what became of it so far."""

    number: int
    params: dict[str, Any]
    code: str  # of the plugins that it was begun with
    accuracies: dict[int, float] = field(default_factory=dict)  # by step, from 0
    spent: int = 0  # images forward
    ended: Ending | None = None
    reason: str = ""

    def score(self, steps: int | None = None) -> float:
        """Mean accuracy over the first steps, or all that there are."""
        return fmean(list(self.accuracies.values())[:steps])


class Ledger:
    """Reads and writes the book of one goal."""

    def __init__(self, store: ResultStore, goal: Goal) -> None:
        self.store, self.key = store, f"{LEDGER}{goal.cell.key}"
        self.trials: dict[int, Trial] = {}
        for record in store.read(self.key):
            self._apply(record)

    @property
    def spent(self) -> int:
        """Images forward by all trials, in this run and earlier ones."""
        return sum(trial.spent for trial in self.trials.values())

    @property
    def step_cost(self) -> int:
        """The most that one step has cost; 0 before the first."""
        return max((t.spent // len(t.accuracies) for t in self.trials.values() if t.accuracies), default=0)

    def best(self) -> Trial | None:
        """The complete trial of the highest score, of equals the first."""
        complete = [trial for trial in self.trials.values() if trial.ended == "complete"]
        return max(complete, key=lambda t: (t.score(), -t.number), default=None)

    def open(self) -> list[int]:
        """Trials that were begun and not ended."""
        return [number for number, trial in self.trials.items() if trial.ended is None]

    def begin(self, number: int, params: dict[str, Any], code: str) -> None:
        """A trial starts, for the first time."""
        self._write({"event": "begin", "number": number, "params": params, "code": code})

    def step(self, number: int, step: int, accuracy: float, spent: int) -> None:
        """A trial has been through a domain."""
        event = {"event": "step", "number": number, "step": step}
        self._write(event | {"accuracy": accuracy, "spent": spent})

    def end(self, number: int, how: Ending, reason: str = "") -> None:
        """A trial is over."""
        self._write({"event": "end", "number": number, "how": how, "reason": reason})

    def _write(self, event: Record) -> None:
        record = {"key": self.key} | event
        self.store.append(self.key, [record])
        self._apply(record)

    def _apply(self, record: Record) -> None:
        number = record["number"]
        if record["event"] != "begin" and number not in self.trials:  # its beginning is damaged
            return
        if record["event"] == "begin":
            self.trials[number] = Trial(number, record["params"], record["code"])
        elif record["event"] == "step":
            # A method that cannot be saved goes through a domain again: that is paid for again, too.
            self.trials[number].accuracies[record["step"]] = record["accuracy"]
            self.trials[number].spent += record["spent"]
        else:
            self.trials[number].ended, self.trials[number].reason = record["how"], record["reason"]
