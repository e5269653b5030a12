"""What each parameter does: trials by where their value lies, and the accuracy that these came to.

All parameters of a random search vary at once, so a line averages over the others. After its first domain
every trial has a number; over all domains only those have one that were not stopped early.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from tabulate import tabulate

from tta_bench.space import Space
from tta_bench.tune.ledger import Trial
from tta_bench.tune.presets_file import Found

BINS = 4  # of a range
HEADER = ("search", "parameter", "value", "trials", "first_domain", "complete", "best")


class Line(NamedTuple):
    """Trials of one search whose parameter lies in one range, or has one value."""

    search: str
    parameter: str
    value: str
    trials: int
    first_domain: float | None  # mean accuracy after one domain, of all of them
    complete: int
    best: float | None  # accuracy over all domains, of those that were complete


def lines(found: Sequence[Found]) -> list[Line]:
    """The table, parameter by parameter."""
    return [
        _line(each.goal.name, name, value, members)
        for each in found
        for name, space in each.goal.spaces.items()
        for value, members in _binned(name, space, list(each.ledger.trials.values()))
    ]


def _line(search: str, name: str, value: str, members: Sequence[Trial]) -> Line:
    begun = [trial.score(1) for trial in members if trial.accuracies]
    scores = [trial.score() for trial in members if trial.ended == "complete"]
    first = fmean(begun) if begun else None
    return Line(search, name, value, len(members), first, len(scores), max(scores, default=None))


def _binned(name: str, space: Space, trials: Sequence[Trial]) -> list[tuple[str, list[Trial]]]:
    """Trials by value; of a range, by where in it they lie. What was there before tuning may lie outside."""
    if not trials or space.share(trials[0].params[name]) is None:
        values = sorted({trial.params[name] for trial in trials}, key=str)
        return [(str(v), [t for t in trials if t.params[name] == v]) for v in values]
    bins: list[list[Trial]] = [[] for _ in range(BINS)]
    for trial in trials:
        share: Any = space.share(trial.params[name])
        bins[min(BINS - 1, max(0, int(share * BINS)))].append(trial)
    return [(_range([t.params[name] for t in members]), members) for members in bins if members]


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} – {high:g}"


def to_text(table: Sequence[Line]) -> str:
    """The table for a terminal."""
    header = ("Search", "Parameter", "Value", "Trials", "First domain (%)", "Complete", "Best (%)")
    rows, last = [], ""
    for line in table:
        shown = line._replace(search="" if line.search == last else line.search)
        rows.append(["–" if v is None else f"{v:.1f}" if isinstance(v, float) else v for v in shown])
        last = line.search
    return tabulate(rows, header, tablefmt="simple", disable_numparse=True)


def to_csv(table: Sequence[Line]) -> str:
    """The table for machines."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    rows = [["" if v is None else f"{v:.4f}" if isinstance(v, float) else v for v in line] for line in table]
    writer.writerows(rows)
    return out.getvalue()
