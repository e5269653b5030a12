"""Print what commands found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from tta_bench.terminal import say

if TYPE_CHECKING:
    from tta_bench.commands.results import Results


def show(found: Any, as_json: bool, failed: bool = False) -> None:
    """Print a description as text, or as JSON; exit with 1 if a check has failed."""
    say(json.dumps(found.data) if as_json else found.text)
    if failed:
        raise typer.Exit(1)


def tell(text: object, quiet: bool = False) -> None:
    """Print a note to standard error, unless `quiet`."""
    if not quiet:
        say(text, error=True)


def tell_notes(results: Results) -> None:
    """Print what the results do not show; call it when they have been read, as damage is found by reading."""
    for note in results.notes:
        tell(note)
