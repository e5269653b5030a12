"""Watches the head node: without one, Ray's calls block for a minute and then abort the process."""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import sys
import threading
import time
from collections.abc import Callable

from tta_bench.errors import UserError
from tta_bench.terminal import say

PERIOD_SECONDS = 1.0
# Ray's own setting, for clusters whose head node restarts, has precedence.
LOST_SECONDS = float(os.environ.get("RAY_gcs_rpc_server_reconnect_timeout_s", 15))  # noqa: SIM112
BLOCKED_SECONDS = 10.0  # for the main thread to notice, before this one ends the process
EXIT_CODE = 3


class HeadLost(UserError):
    """The head node of the cluster does not answer any more."""

    exit_code = EXIT_CODE

    def __init__(self, address: str) -> None:
        super().__init__(
            f"Ray at {address}: the head node has not answered for {LOST_SECONDS:.0f} s, and the run ends. "
            "All records are kept; once there is a cluster again, the same command continues."
        )


class HeadWatch:
    """A thread that connects to the head node once a second."""

    def __init__(self, address: str, end: Callable[[], None] | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.address, self.place, self.end = address, (host.strip("[]"), int(port)), end or _exit
        self.lost, self._over = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._watch, name="head-watch", daemon=True)
        self.thread.start()

    def check(self) -> None:
        """Raise HeadLost if the head node is lost."""
        if self.lost.is_set():
            raise HeadLost(self.address)

    def answers(self) -> bool:
        """Whether the head node accepts connections; without one, some calls of Ray abort the process."""
        try:
            socket.create_connection(self.place, timeout=PERIOD_SECONDS).close()
        except OSError:
            return False
        return True

    def close(self, shutdown: Callable[[], None]) -> None:
        """Stop watching and disconnect. Without a head node Ray cannot: then the process ends without Ray."""
        self._over.set()
        if self.lost.is_set():
            _end_without(shutdown)
        else:
            shutdown()

    def _watch(self) -> None:
        answered = time.monotonic()
        while not self._over.wait(PERIOD_SECONDS):
            if self.answers():
                answered = time.monotonic()
            elif time.monotonic() - answered > LOST_SECONDS:
                self.lost.set()
                break
        else:
            return
        if not self._over.wait(BLOCKED_SECONDS):  # the main thread is inside a call of Ray
            say(HeadLost(self.address), error=True)
            self.end()


def _end_without(shutdown: Callable[[], None]) -> None:
    """Let the process end without Ray, whose handlers need the head node, but with its own exit code.

    A program may have caught HeadLost and end as it likes. Without `on_exit` in the C library, the code is 3.
    """
    try:
        library = ctypes.CDLL(None)
        library.on_exit(ctypes.cast(library._exit, ctypes.c_void_p), None)
    except (AttributeError, OSError, TypeError):
        atexit.register(_exit)
    else:
        atexit.unregister(shutdown)


def _exit() -> None:
    """End the process without Ray's own handlers, which would wait for the head node."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)
