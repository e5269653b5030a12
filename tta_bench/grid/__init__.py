"""Benchmark → cells."""

from tta_bench.grid.cell import AXES, Cell, Labels, cell_of, row_of
from tta_bench.grid.expand import expand, identity_of
from tta_bench.grid.filters import only

__all__ = ["AXES", "Cell", "Labels", "cell_of", "expand", "identity_of", "only", "row_of"]
