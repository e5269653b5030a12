"""Complaints about data on disk: every one names a place, and long lists are cut."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.errors import UserError

NAMED = 5  # of many like things, how many a sentence names
LISTED = 20  # of many broken files, how many get a line of their own


class BadData(UserError):
    """Data that is not there or not what it should be: which, why, and what to do."""


def some(names: Sequence[object]) -> str:
    """The first few of many, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(map(str, names[:NAMED])) + more


def cut(sentences: Sequence[str], place: object) -> list[str]:
    """The first sentences of many, and how many more there are."""
    left = len(sentences) - LISTED
    return [*sentences[:LISTED], *([f"{place}: {left} more like these."] if left > 0 else [])]
