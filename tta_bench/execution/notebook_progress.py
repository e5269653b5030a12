"""A progress bar in a notebook. Rich draws one only with ipywidgets; this one needs IPython alone."""

from __future__ import annotations

import time
from typing import Any

from rich.progress import Progress

INTERVAL_SECONDS = 0.2  # between drawings; a front end may be slow


class NotebookProgress(Progress):
    """Draws itself as the output of a cell, and replaces this output when it changes."""

    def start(self) -> None:
        """Show the bar."""
        from IPython.display import display

        self.drawn = time.monotonic()
        self.handle = None if self.console.quiet else display(self, display_id=True)

    def stop(self) -> None:
        """Draw the bar for the last time."""
        self._draw()

    def update(self, *given: Any, **fields: Any) -> None:
        super().update(*given, **fields)
        self._draw_sometimes()

    def advance(self, *given: Any, **fields: Any) -> None:
        super().advance(*given, **fields)
        self._draw_sometimes()

    def _draw_sometimes(self) -> None:
        if time.monotonic() - self.drawn >= INTERVAL_SECONDS:
            self._draw()

    def _draw(self) -> None:
        if self.handle is not None:
            self.handle.update(self)
        self.drawn = time.monotonic()
