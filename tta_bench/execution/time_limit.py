"""A time limit for plugin code, by an alarm signal in the main thread: the traceback shows where it hung."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tta_bench.errors import UserError

AGAIN_SECONDS = 0.1


class TimeLimit(BaseException):
    """The time is up. Not an Exception, because a plugin may catch those and continue to hang."""


def check(seconds: float | None) -> None:
    """Raise UserError if a time limit is wanted and this process cannot enforce one."""
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
    """Raise TimeLimit in the block after so many seconds; None means no limit."""
    if seconds is None:
        yield
        return

    def ring(_: int, frame: FrameType | None) -> None:
        if importing(frame):  # a half-imported module would break every later cell of this process
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
    """Whether a module is being imported in this frame or one of its callers."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
