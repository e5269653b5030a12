"""Figures as PDF, PNG or SVG: `draw(frame, "rounds", path)`. A new one is a module and an entry in FIGURES.

All figures but `online` draw the numbers of a table. All refuse records that a table refuses. Matplotlib is
imported only when a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tta_bench.errors import UserError, suggest
from tta_bench.figures import motivation, online, pareto, rounds

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
    """Draw a figure to a file, whose extension is the format."""
    if name not in FIGURES:
        raise UserError(f'figure "{name}": unknown. {suggest(name, list(FIGURES))}')
    if path.suffix not in FORMATS:
        raise UserError(f"{path}: unknown format. Use one of {', '.join(FORMATS)}.")
    if not path.parent.is_dir():
        raise UserError(f"{path}: the folder {path.parent} does not exist. Make it first.")
    from tta_bench.figures.style import saved

    saved(lambda: FIGURES[name](frame, round), path)
