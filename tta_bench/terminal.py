"""Text on a terminal. Names, reasons and paths may come from others; their control characters are escaped."""

from __future__ import annotations

import json
import sys
import unicodedata

LINES = "\n\t"  # what a text of several lines may hold


def printable(text: str, keep: str = "") -> str:
    """The text with every character that a terminal could obey written as JSON writes it, e.g. `\\u001b`.

    These are control and format characters, text direction marks, line separators and lone surrogates; `keep`
    names those that stay. JSON with such a character in one of its texts stays the same JSON.
    """
    if text.isprintable():
        return text
    return "".join(char if char in keep or _harmless(char) else json.dumps(char)[1:-1] for char in text)


def say(text: object, error: bool = False) -> None:
    """Print a text of any number of lines, to standard output or to standard error."""
    print(printable(str(text), LINES), file=sys.stderr if error else sys.stdout, flush=error)


def _harmless(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"  # spaces of other widths
