"""Errors a user can act on; the command line prints them without a traceback and exits with 2."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass


class UserError(Exception):
    """An error that the user can fix: place, problem, remedy."""

    exit_code = 2


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an input."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


def shown(value: object) -> str:
    """A value for a message, cut to at most 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print thousands of digits
        text = "a number of very many digits"
    return text if len(text) <= 60 else text[:57] + "…"


def closest(word: str, known: Sequence[str], most: int = 1) -> list[str]:
    """The known words that are spelt like this one, the closest first."""
    return difflib.get_close_matches(word, known, n=most)


def suggest(word: str, known: Sequence[str], what: str = "Known") -> str:
    """`Did you mean …? Known: …` for an error message."""
    hint = "".join(f'Did you mean "{close}"? ' for close in closest(word, known))
    return f"{hint}{what}: {', '.join(known)}."


class ConfigError(UserError):
    """All problems of one file, reported together."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = list(problems)
        super().__init__("\n".join(f"{file}: {problem}" for problem in problems))


class Unsupported(Exception):
    """A combination that cannot run; the reason is shown in the table."""
