"""Published numbers by name: what a reference is, and where its numbers are read from."""

from tta_bench.tables.references.loading import as_names, load, names
from tta_bench.tables.references.reference import Reference

__all__ = ["Reference", "as_names", "load", "names"]
