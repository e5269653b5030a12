"""What a search may still spend, and which trials are worth going on with: pure decisions from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tta_bench.tune.ledger import Ledger

KEPT = 0.5  # share of the trials that pass each rung
MOST_REPEATS = 100  # samples in a row that were tried already: the space is exhausted


@dataclass(frozen=True)
class Budget:
    """The images forward that one goal may take; the same for every goal."""

    images: int
    steps: int  # of a whole trial
    declared: int  # what a step should cost, before any has been measured

    def whole(self, ledger: Ledger) -> int:
        """What one whole trial costs."""
        return self.steps * (ledger.step_cost or self.declared)

    def allows(self, ledger: Ledger, running: Sequence[int]) -> bool:
        """Whether another whole trial fits beside what the running ones may still take."""
        whole = self.whole(ledger)
        owed = sum(max(0, whole - ledger.trials[number].spent) for number in running)
        return ledger.spent + owed + whole <= self.images


def rungs(steps: int) -> list[int]:
    """After how many steps a trial is looked at: 1, 2, 4, …, before the last."""
    return [2**i for i in range(steps.bit_length()) if 2**i < steps]


def promising(ledger: Ledger, number: int, steps: int) -> bool:
    """Whether a trial goes on: asynchronous successive halving over all trials in the book (ASHA).

    At a rung it must be no worse than the better half of those that got there before. Trial 0, which is what
    would run untuned, always goes on: everything is measured against it.
    """
    done = len(ledger.trials[number].accuracies)
    if number == 0 or done not in rungs(steps):
        return True
    others = [t for t in ledger.trials.values() if t.number != number and len(t.accuracies) >= done]
    if not others:
        return True
    cut = float(np.quantile([t.score(done) for t in others], 1 - KEPT))
    return ledger.trials[number].score(done) >= cut
