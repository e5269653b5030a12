"""A Table as text: `render(table, "latex")`. A new format is a function and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from tta_bench.render import data, html, latex, text
from tta_bench.render.latex import document
from tta_bench.table import Table, TableError

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
    """The table in a format, ending in a newline; a file's extension names its format."""
    format = ALIASES.get(format, format)
    if format not in FORMATS:
        close = get_close_matches(format, FORMATS, n=1)
        hint = f'Did you mean "{close[0]}"? ' if close else ""
        raise TableError("render", f'unknown format "{format}"', f"{hint}There are: {', '.join(FORMATS)}")
    return FORMATS[format](table)
