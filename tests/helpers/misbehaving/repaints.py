"""Says of itself what would clear a screen and change a window's title if it reached a terminal."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tta_bench.api import Method, Model, Source

SEQUENCE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp.txt\r"


@dataclass
class Repaints(Method):
    """A method whose every word is hostile to terminals."""

    summary = f"repaints {SEQUENCE}"
    reason: str = SEQUENCE

    def setup(self, model: Model, source: Source) -> None:
        self.model = model

    def step(self, x: Tensor) -> Tensor:
        raise RuntimeError(f"failed {self.reason}")
