"""A flag by which the driver asks all workers to stop. Imports no torch: it runs in a process of its own."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

POLL_SECONDS = 1.0


class StopFlag:
    """Set by the driver, polled by workers once per second.

    The flag is set once a Ray actor with its name exists. Ray's own directory answers whether there is such a
    name, so no busy or dead process can hide the flag. Until a stop is requested there is no actor.
    """

    def __init__(self, run: str) -> None:
        self.name = f"tta-bench-stop-{run}"
        self.is_set, self.polled = False, 0.0
        self._marker: Any = None  # the actor lives as long as this reference

    def __getstate__(self) -> dict[str, Any]:
        """Workers get the name, and not the driver's reference to the actor."""
        return vars(self) | {"_marker": None}

    def set(self) -> None:
        """Ask all workers to stop."""
        import ray

        if not self.is_set:
            make = ray.remote(num_cpus=0)(StopMarker)
            self._marker = make.options(name=self.name, get_if_exists=True).remote()
        self.is_set = True

    def __call__(self) -> bool:
        """Whether the driver has asked for a stop."""
        now = time.monotonic()
        if not self.is_set and now - self.polled > POLL_SECONDS:
            import ray

            self.polled = now
            with suppress(ValueError):  # there is no such actor
                ray.get_actor(self.name)
                self.is_set = True
        return self.is_set


class StopMarker:
    """An actor that does nothing; its name is the flag."""
