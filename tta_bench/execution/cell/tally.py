"""What a segment counts: scores, time and passes, divided by the domains that it visits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from torch import Tensor

from tta_bench.execution.cell.score import Score
from tta_bench.execution.stream_reader import Targets
from tta_bench.storage.record import Record


@dataclass
class Tally:
    """Scores, time and passes of one segment so far."""

    scores: list[Score]  # one for each visit of the segment
    sizes: list[list[int]]  # images in every batch, for each visit
    seconds: float = 0.0
    forward_images: int = 0
    backward_images: int = 0
    skipped_updates: int = 0
    skipped_reasons: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, visits: int) -> Tally:
        """A tally for a segment of so many visits."""
        return cls([Score() for _ in range(visits)], [[] for _ in range(visits)])

    def add(self, output: Tensor, targets: Targets, kind: str) -> None:
        """Add the predictions of one batch, split by visit."""
        if len(self.scores) == 1:
            self.scores[0].add(output, targets.labels, kind)
            return
        for number, score in enumerate(self.scores):
            own = targets.visits == number
            score.add(output[own], targets.labels[own], kind)
            self.sizes[number].append(int(own.sum()))

    def skipped(self, updates: int, reasons: Counter[str]) -> None:
        """Add skipped updates."""
        self.skipped_updates += updates
        self.skipped_reasons = dict(Counter(self.skipped_reasons) + reasons)

    def state_dict(self) -> dict[str, Any]:
        """The counts as plain data."""
        return vars(self) | {"scores": [score.state_dict() for score in self.scores]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from saved counts."""
        for score, saved in zip(self.scores, state["scores"], strict=True):
            score.load_state_dict(saved)
        vars(self).update(state | {"scores": self.scores})

    def results(self) -> list[Record]:
        """The fields of the record of each visit."""
        costs = {name: value for name, value in vars(self).items() if name not in ("scores", "sizes")}
        if len(self.scores) == 1:
            return [self.scores[0].summary() | costs]
        images = [sum(sizes) for sizes in self.sizes]
        divided = {name: _divided(value, images) for name, value in costs.items()}
        return [
            score.summary() | {"images_per_batch": self.sizes[i]} | {name: divided[name][i] for name in costs}
            for i, score in enumerate(self.scores)
        ]


def _divided(total: Any, images: Sequence[int]) -> list[Any]:
    """A total in parts proportional to numbers of images; whole numbers stay whole, and their sum is kept."""
    if isinstance(total, dict):
        parts = {name: _divided(count, images) for name, count in total.items()}
        return [{name: parts[name][i] for name in parts if parts[name][i]} for i in range(len(images))]
    if isinstance(total, float):
        return [total * count / sum(images) for count in images]
    return [b - a for a, b in pairwise(total * n // sum(images) for n in accumulate(images, initial=0))]
