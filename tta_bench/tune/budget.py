"""The remaining budget of a search, and which trials to continue; both depend only on the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tta_bench.tune.ledger import Ledger

KEPT = 0.5  # share of the trials that continue after each rung
MOST_REPEATS = 100  # consecutive samples that were tried before: the space is exhausted


@dataclass(frozen=True)
class Budget:
    """The forward passes of images that one goal may use; the same for every goal."""

    images: int
    steps: int  # of a whole trial
    declared: int  # expected cost of a step, until one has been measured

    def whole(self, ledger: Ledger) -> int:
        """The cost of one whole trial."""
        return self.steps * (ledger.step_cost or self.declared)

    def allows(self, ledger: Ledger, running: Sequence[int]) -> bool:
        """Whether another whole trial fits, if all running trials use their full cost."""
        whole = self.whole(ledger)
        reserved = sum(max(0, whole - ledger.trials[number].spent) for number in running)
        return ledger.spent + reserved + whole <= self.images


def rungs(steps: int) -> list[int]:
    """The numbers of steps after which a trial may be stopped: 1, 2, 4, …, before the last."""
    return [2**i for i in range(steps.bit_length()) if 2**i < steps]


def promising(ledger: Ledger, number: int, steps: int) -> bool:
    """Whether a trial continues, by asynchronous successive halving (ASHA) over all trials in the ledger.

    At a rung it must not be worse than the better half of the trials that reached it before. Trial 0 has the
    untuned parameters and always continues, as it is the baseline.
    """
    done = len(ledger.trials[number].accuracies)
    if number == 0 or done not in rungs(steps):
        return True
    others = [t for t in ledger.trials.values() if t.number != number and len(t.accuracies) >= done]
    if not others:
        return True
    cut = float(np.quantile([t.score(done) for t in others], 1 - KEPT))
    return ledger.trials[number].score(done) >= cut
