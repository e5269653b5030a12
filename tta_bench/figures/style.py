"""The style of figures: a palette for colour-blind readers, thin axes, no decoration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, darker colours first; black is for no adaptation.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8C564B")
BASELINE = "#000000"
MARKERS = "osD^vPX*<>hpd8"
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "pdf.fonttype": 42,  # embed text as text, as publishers require
    "svg.fonttype": "none",
    "svg.hashsalt": "tta-bench",
}
PANEL = (3.3, 2.4)  # inches: one column of a two-column page
MOST_ACROSS = 3


def saved(make: Callable[[], Figure], path: Path) -> None:
    """Draw a figure in our style and write it; the same figure gives the same bytes."""
    from matplotlib import rc_context

    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {"Software": None}}
    with rc_context(STYLE):
        make().savefig(path, dpi=200, metadata=undated[path.suffix], bbox_inches="tight")


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with this many panels, row by row."""
    from matplotlib.figure import Figure

    across = min(count, MOST_ACROSS)
    down = -(-count // across)
    figure = Figure(figsize=(PANEL[0] * across, PANEL[1] * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.remove()
    for axis in axes[:count]:
        axis.grid(axis="y", color="#DDDDDD", linewidth=0.5)
    return figure, axes[:count]


def colours(labels: Sequence[str]) -> dict[str, str]:
    """A colour for each label, the same wherever it occurs; Source is black."""
    others = [label for label in dict.fromkeys(labels) if label.lower() != "source"]
    found = {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(others)}
    return {label: found.get(label, BASELINE) for label in labels}


def markers(labels: Sequence[str]) -> dict[str, str]:
    """A marker for each label."""
    return {label: MARKERS[i % len(MARKERS)] for i, label in enumerate(dict.fromkeys(labels))}


def number(value: float | bool | None) -> float:
    """The value of an entry that is not a dash."""
    assert value is not None
    return float(value)
