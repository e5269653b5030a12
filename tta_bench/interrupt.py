"""Ctrl-C: once asks the run to stop at the next batch, with everything kept; twice stops it now.

Outside of a run it stops the program at once, with exit code 130 and without a traceback.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tta_bench.limits import importing

EXIT_CODE = 130  # what shells give for a process that Ctrl-C has ended


class Listener:
    """Calls `pressed` on Ctrl-C while it is entered.

    Signals reach only the main thread of a process. In another thread, e.g. of a notebook, nothing changes:
    the owner of the main thread decides what Ctrl-C does.
    """

    def __enter__(self) -> Any:
        self.installed = threading.current_thread() is threading.main_thread()
        if self.installed:
            self.before = signal.signal(signal.SIGINT, self.pressed)
        return self

    def __exit__(self, *_: object) -> None:
        if self.installed:
            signal.signal(signal.SIGINT, self.before)

    def pressed(self, number: int, frame: FrameType | None) -> None:
        """What to do on Ctrl-C."""
        raise KeyboardInterrupt


class Interrupt(Listener):
    """Answers whether a stop was asked for, and listens for it while it is entered."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.requested = say, False

    def __call__(self) -> bool:
        return self.requested

    def pressed(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.say("Stopping after the batch at hand. Ctrl-C again stops now.")


class Stop(Listener):
    """Ends the program on Ctrl-C.

    Inside an import it does so at once: an extension module turns a KeyboardInterrupt into another error, or
    aborts the process. Nothing is lost, since results are written atomically.
    """

    def pressed(self, number: int, frame: FrameType | None) -> None:
        if importing(frame):
            os._exit(EXIT_CODE)
        raise KeyboardInterrupt
