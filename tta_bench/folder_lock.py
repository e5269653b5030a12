"""The lock of a results folder: one run writes at a time, and whoever comes second is told who that is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tta_bench.errors import UserError
from tta_bench.plain_files import plain_file

try:
    import fcntl
except ImportError:  # Windows; results can be read there
    fcntl = None  # type: ignore[assignment]


class Lock:
    """An advisory lock that dies with its process."""

    def __init__(self, path: Path) -> None:
        if fcntl is None:
            raise UserError(
                f"{path.parent}: results are written under a lock, which needs Linux or macOS. Run there; "
                "reading results works everywhere."
            )
        path = plain_file(path.parent, path.name)  # not a link, whose target would be emptied
        self._file = open(path, "a+", errors="replace")  # noqa: SIM115 (held until released)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise UserError(
                f"{path.parent}: in use by {holder}. Wait for it, or choose another --results folder."
            ) from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
        self._file.flush()

    def release(self) -> None:
        """Let the folder go."""
        self._file.truncate(0)
        self._file.close()
