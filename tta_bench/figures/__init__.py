"""Figures as PDF, PNG or SVG: `draw(frame, "rounds", path)`; a new one is a file and a line here.

All but one draw a table, so that a figure shows the numbers that the table prints and refuses what it
refuses. Matplotlib is imported when something is drawn, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tta_bench.errors import UserError
from tta_bench.figures import motivation, online, pareto, rounds
from tta_bench.registry import suggest

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Drawing = Callable[["DataFrame", "int | None"], "Figure"]

FIGURES: Mapping[str, Drawing] = MappingProxyType(
    {
        "motivation": motivation.draw,
        "online": online.draw,
        "rounds": rounds.draw,
        "pareto": pareto.draw,
    }
)
FORMATS = (".pdf", ".png", ".svg")


def draw(frame: DataFrame, name: str, path: Path, round: int | None = None) -> None:
    """Draw a figure to a file; its ending is its format."""
    if name not in FIGURES:
        raise UserError(f'figure "{name}": unknown. {suggest(name, list(FIGURES))}')
    if path.suffix not in FORMATS:
        raise UserError(f"{path}: no format of a figure. End it in {', '.join(FORMATS)}.")
    if not path.parent.is_dir():
        raise UserError(f"{path}: the folder {path.parent} does not exist. Make it first.")
    from tta_bench.figures.style import saved

    saved(lambda: FIGURES[name](frame, round), path)
