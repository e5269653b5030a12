"""Ctrl-C: once asks the run to stop at the next batch, with everything kept; twice stops it now.

Outside of a run it stops the program at once, with exit code 130 and without a traceback.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

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

    def pressed(self, *_: Any) -> None:
        """What to do on Ctrl-C."""
        raise KeyboardInterrupt


class Interrupt(Listener):
    """Answers whether a stop was asked for, and listens for it while it is entered."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.requested = say, False

    def __call__(self) -> bool:
        return self.requested

    def pressed(self, *_: Any) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.say("Stopping after the batch at hand. Ctrl-C again stops now.")


class Stopped(Listener):
    """Ends the program on Ctrl-C, and knows that it was pressed, whatever became of the exception.

    Extension modules turn a KeyboardInterrupt during their import into errors of other types.
    """

    def __init__(self) -> None:
        self.requested = False

    def __bool__(self) -> bool:
        return self.requested

    def pressed(self, *_: Any) -> None:
        self.requested = True
        raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self.requested:  # once more ends the process without a word, whatever it is still cleaning up
            signal.signal(signal.SIGINT, signal.SIG_DFL)
