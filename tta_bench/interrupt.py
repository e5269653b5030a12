"""Ctrl-C: once asks the run to stop at the next batch, with everything kept; twice stops it now."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any


class Interrupt:
    """Answers whether a stop was asked for, and listens for it while it is entered."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.requested = say, False

    def __call__(self) -> bool:
        return self.requested

    def __enter__(self) -> Interrupt:
        self.before = signal.signal(signal.SIGINT, self._pressed)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self.before)

    def _pressed(self, *_: Any) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.say("Stopping after the batch at hand. Ctrl-C again stops now.")
