"""What a check of this machine finds."""

from __future__ import annotations

from dataclasses import dataclass

OK, NOTE, PROBLEM = "ok", "note", "problem"  # fine; something optional is missing; cannot run like this


@dataclass(frozen=True)
class Finding:
    """The outcome of one check of this machine."""

    what: str
    state: str
    found: str
    remedy: str = ""
