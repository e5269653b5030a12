"""The lock of a results folder: one run writes at a time; a second one is told which process that is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tta_bench.errors import UserError
from tta_bench.files import plain_file

try:
    import fcntl
except ImportError:  # Windows; results can be read there
    fcntl = None  # type: ignore[assignment]


class Lock:
    """An advisory lock, which ends with its process."""

    def __init__(self, path: Path) -> None:
        if fcntl is None:
            raise UserError(
                f"{path.parent}: results are written under a lock, which needs Linux or macOS. Run there; "
                "reading results works everywhere."
            )
        path = plain_file(path.parent, path.name)  # not a link: its target would be truncated
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
        """Unlock the folder."""
        self._file.truncate(0)
        self._file.close()
