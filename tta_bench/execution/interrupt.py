"""Ctrl-C: once, the run stops after the current batch and saves everything; twice, it stops now.

Outside of a run it ends the program at once, with exit code 130 and without a traceback.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tta_bench.execution.time_limit import importing

EXIT_CODE = 130  # of a process that Ctrl-C has ended, by the convention of shells


class Stop:
    """A context manager in which Ctrl-C ends the program.

    Only the main thread of a process can handle signals. In another thread, e.g. of a notebook, nothing
    changes: the code in the main thread decides what Ctrl-C does.
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
        """Handle Ctrl-C; during an import, exit without raising.

        An extension module may turn a KeyboardInterrupt into another error, or abort the process. Nothing is
        lost, since results are written atomically.
        """
        if importing(frame):
            os._exit(EXIT_CODE)
        raise KeyboardInterrupt


class Interrupt(Stop):
    """A stop request by Ctrl-C; call it to ask whether there was one."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.requested = say, False

    def __call__(self) -> bool:
        return self.requested

    def pressed(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.say("Stopping after the batch at hand. Ctrl-C again stops now.")
