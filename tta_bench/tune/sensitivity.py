"""The effect of each parameter: trials grouped by its value, and their accuracy.

All parameters vary together in a random search, so each row averages over the others. All trials have an
accuracy after the first domain; only those that were not stopped early have one over all domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd
from tabulate import tabulate

from tta_bench.plugins.search_space import Space
from tta_bench.tune.ledger import Ledger, TuneTrial

BINS = 4  # per range


class SensitivityRow(NamedTuple):
    """The trials of one search with a parameter in one range, or with one value."""

    search: str
    parameter: str
    value: str
    trials: int
    first_domain: float | None  # mean accuracy after one domain, over all trials
    complete: int
    best: float | None  # highest accuracy over all domains, of complete trials


HEADER = SensitivityRow._fields


def table(ledgers: Sequence[Ledger]) -> list[SensitivityRow]:
    """The rows of the table, by search and parameter."""
    return [
        _row(ledger.goal.name, name, value, members)
        for ledger in ledgers
        for name, space in ledger.goal.spaces.items()
        for value, members in _binned(name, space, list(ledger.trials.values()))
    ]


def _row(search: str, name: str, value: str, members: Sequence[TuneTrial]) -> SensitivityRow:
    begun = [trial.score(1) for trial in members if trial.accuracies]
    scores = [trial.score() for trial in members if trial.ended == "complete"]
    first = fmean(begun) if begun else None
    return SensitivityRow(search, name, value, len(members), first, len(scores), max(scores, default=None))


def _binned(name: str, space: Space, trials: Sequence[TuneTrial]) -> list[tuple[str, list[TuneTrial]]]:
    """Trials by value or, for a range, by bin. The untuned value may lie outside the range."""
    if not trials or space.share(trials[0].params[name]) is None:
        values = sorted({trial.params[name] for trial in trials}, key=str)
        return [(str(v), [t for t in trials if t.params[name] == v]) for v in values]
    bins: list[list[TuneTrial]] = [[] for _ in range(BINS)]
    for trial in trials:
        share: Any = space.share(trial.params[name])
        bins[min(BINS - 1, max(0, int(share * BINS)))].append(trial)
    return [(_range([t.params[name] for t in members]), members) for members in bins if members]


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} – {high:g}"


def to_text(rows: Sequence[SensitivityRow]) -> str:
    """The table for a terminal."""
    header = ("Search", "Parameter", "Value", "Trials", "First domain (%)", "Complete", "Best (%)")
    texts, last = [], ""
    for row in rows:
        shown = row._replace(search="" if row.search == last else row.search)
        texts.append(["–" if v is None else f"{v:.1f}" if isinstance(v, float) else v for v in shown])
        last = row.search
    return tabulate(texts, header, tablefmt="simple", disable_numparse=True)


def to_csv(rows: Sequence[SensitivityRow]) -> str:
    """The table as CSV."""
    return str(
        pd.DataFrame(rows, columns=HEADER).to_csv(index=False, float_format="%.4f", lineterminator="\n")
    )
