"""Problems with data on disk: errors, and lists of names that are shortened for messages."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.errors import UserError

NAMED = 5  # at most so many names in one sentence
LISTED = 20  # at most so many lines, one for each damaged file


class BadData(UserError):
    """Data that is missing or wrong: place, problem, remedy."""


def some(names: Sequence[object]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(map(str, names[:NAMED])) + more


def cut(sentences: Sequence[str], place: object) -> list[str]:
    """The first few sentences, and how many more there are."""
    left = len(sentences) - LISTED
    return [*sentences[:LISTED], *([f"{place}: {left} more like these."] if left > 0 else [])]
