"""Environment variables that Ray and the processes it starts read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def temporary_environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set variables that the user has not set, and remove them afterwards.

    Without the removal, a second cluster that the same program starts would inherit them.
    """
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
