"""Errors a user can act on; the command line prints them without a traceback and exits with 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class UserError(Exception):
    """Something to be mended outside the program: place, problem, remedy."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an input."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


def shown(value: object) -> str:
    """A value as a message has it: never long, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # Python does not spell out thousands of digits
        text = "a number of very many digits"
    return text if len(text) <= 60 else text[:57] + "…"


class ConfigError(UserError):
    """Everything that is wrong with one file, all at once."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file = file
        self.problems = list(problems)
        super().__init__("\n".join(f"{file}: {problem}" for problem in problems))


class Unsupported(Exception):
    """A combination that cannot run, for a reason that goes into the table."""
