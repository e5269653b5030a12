"""Ctrl-C, SIGTERM and SIGHUP: the run stops after the current batch and saves everything.

Ctrl-C twice stops it now. So does a SIGTERM or SIGHUP after `STOP_SECONDS`: half a minute after these
signals, Slurm and Kubernetes kill what is still running. Outside of a run, Ctrl-C ends the program at once
without a traceback, and the other two signals end it as they end any program.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tta_bench.execution.time_limit import importing

STOP_SECONDS = 20.0  # for the batch at hand after SIGTERM or SIGHUP
EXIT_SECONDS = 8.0  # for ending after that; then the process exits without cleaning up
STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Stopped(KeyboardInterrupt):
    """A signal has ended the run."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = exit_code(number)


def exit_code(number: int) -> int:
    """The exit code of a process that a signal has ended, by the convention of shells."""
    return 128 + number


def code_of_stop(stopped: KeyboardInterrupt) -> int:
    """The exit code after a stop. Ray raises a plain KeyboardInterrupt where a handler has raised Stopped."""
    return getattr(stopped, "exit_code", exit_code(signal.SIGINT))


class Stop:
    """A context manager in which Ctrl-C ends the program.

    Only the main thread of a process can handle signals. In another thread, e.g. of a notebook, nothing
    changes: the code in the main thread decides what Ctrl-C does.
    """

    signals: tuple[int, ...] = (signal.SIGINT,)

    def __enter__(self) -> Any:
        self.before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            wanted = [number for number in self.signals if not _ignored(number)]
            self.before = {number: signal.signal(number, self.received) for number in wanted}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def received(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; during an import, exit without raising.

        An extension module may turn a KeyboardInterrupt into another error, or abort the process. Nothing is
        lost, since results are written atomically.
        """
        if importing(frame):
            os._exit(exit_code(number))
        raise Stopped(number)


class Interrupt(Stop):
    """A stop request by a signal; call it to ask whether there was one."""

    signals = STOP_SIGNALS

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.number = say, 0
        self._timers: list[threading.Timer] = []

    def __call__(self) -> bool:
        return self.number != 0

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        for timer in self._timers:
            timer.cancel()

    def check(self) -> None:
        """Raise Stopped if there was a signal."""
        if self.number:
            raise Stopped(self.number)

    def received(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            raise Stopped(self.number)
        self.number = number
        name = signal.Signals(number).name
        if number == signal.SIGINT:
            self._tell("Stopping after the batch at hand. Ctrl-C again stops now.")
            return
        self._tell(f"{name}: stopping after the batch at hand, at most {STOP_SECONDS:.0f} s from now.")
        # A signal interrupts waiting and Python code; a long computation in C only ends with the process.
        self._after(STOP_SECONDS, lambda: os.kill(os.getpid(), number))
        self._after(STOP_SECONDS + EXIT_SECONDS, lambda: os._exit(exit_code(number)))

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, do)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _tell(self, text: str) -> None:
        """Print a message; once the terminal is gone, everything printed later is discarded."""
        try:
            self.say(text)
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Restore signal handlers that the block replaces; children that it starts never get SIGTERM and SIGHUP.

    Schedulers send these to every process of a job, and the run still needs its children to stop properly.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, set(STOP_SIGNALS) - {signal.SIGINT})
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: not installed by Python
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _ignored(number: int) -> bool:
    """Whether `nohup` or the like has switched a signal off. A background shell does that to Ctrl-C."""
    return number != signal.SIGINT and signal.getsignal(number) == signal.SIG_IGN
