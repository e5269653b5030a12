"""A Table as text: `render(table, "latex")`. A new format is a function and an entry in FORMATS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tta_bench.errors import suggest
from tta_bench.tables.render import data, html, latex, text
from tta_bench.tables.render.latex import document
from tta_bench.tables.table import Table, TableError

__all__ = ["FORMATS", "document", "render"]

FORMATS: Mapping[str, Callable[[Table], str]] = MappingProxyType(
    {
        "latex": latex.to_latex,
        "longtable": latex.to_longtable,
        "markdown": text.to_markdown,
        "csv": data.to_csv,
        "json": data.to_json,
        "html": html.to_html,
        "text": text.to_text,
    }
)


ALIASES: Mapping[str, str] = MappingProxyType({"tex": "latex", "md": "markdown", "txt": "text"})


def render(table: Table, format: str) -> str:
    """The table in a format, ending with a newline; file extensions such as `tex` are formats too."""
    format = ALIASES.get(format, format)
    if format not in FORMATS:
        remedy = suggest(format, list(FORMATS), "There are")
        raise TableError("render", f'unknown format "{format}"', remedy)
    return FORMATS[format](table)
