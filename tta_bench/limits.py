"""A time limit on a plugin's code, by an alarm in the main thread: its traceback shows where it hung."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tta_bench.errors import UserError

AGAIN_SECONDS = 0.1


class TimeLimit(BaseException):
    """The time is up. Not an Exception, lest a plugin that catches those goes on hanging."""


def check(seconds: float | None) -> None:
    """Raise if cells of this process are to have a time limit, and none can be kept here."""
    if seconds is None:
        return
    if not hasattr(signal, "SIGALRM"):
        raise UserError(
            "run.cell_minutes: a time limit needs Linux or macOS. Leave it out of the benchmark file."
        )
    if threading.current_thread() is not threading.main_thread():
        raise UserError(
            "run.cell_minutes: a time limit needs the main thread of its process. Run in the main thread, "
            "use the engine ray, or leave it out of the benchmark file."
        )


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Raise TimeLimit in the block once so many seconds have passed; None is no limit."""
    if seconds is None:
        yield
        return

    def ring(_: int, frame: FrameType | None) -> None:
        if importing(frame):  # half a module would break every later cell of this process
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
            return
        raise TimeLimit("the cell has used up its time (run.cell_minutes)")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported just now."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
