"""Print text on a terminal, with control characters escaped: names and paths may come from other people."""

from __future__ import annotations

import json
import shutil
import sys
import unicodedata

LINES = "\n\t"  # control characters that a text of several lines may contain


def printable(text: str, keep: str = "") -> str:
    """The text with every character that a terminal could act on escaped as in JSON, e.g. `\\u001b`.

    These are control and format characters, text direction marks, line separators and lone surrogates; `keep`
    lists those that stay. JSON text that contains such characters stays the same JSON.
    """
    if text.isprintable():
        return text
    return "".join(char if char in keep or _harmless(char) else json.dumps(char)[1:-1] for char in text)


def say(text: object, error: bool = False) -> None:
    """Print a text of any number of lines, to standard output or to standard error."""
    print(printable(str(text), LINES), file=sys.stderr if error else sys.stdout, flush=error)


def terminal_width() -> int | None:
    """The width of the terminal behind standard output; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def spell(seconds: float) -> str:
    """A duration in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def _harmless(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"  # spaces of other widths
