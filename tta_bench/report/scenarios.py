"""The tables of methods × scenarios on the page: one for each benchmark on several streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tta_bench.report.flags import own_rows
from tta_bench.report.tables import RowKey, key_of, packed
from tta_bench.tables.best import SOURCE
from tta_bench.tables.build import build

if TYPE_CHECKING:
    from pandas import DataFrame


def scenario_tables(frame: DataFrame, allow_mixed: bool) -> list[dict[str, Any]]:
    """Layout `scenarios` of each benchmark with several streams, and what filters need of its rows."""
    baselines = set(frame["method"][frame["method_plugin"] == SOURCE])
    found = []
    for benchmark, own in frame.groupby("benchmark", observed=True, sort=False):
        if own["stream"].nunique() > 1:
            table = build(own, "scenarios", allow_mixed=allow_mixed)
            rows = own_rows(table)
            keys = [key_of(*pair) for pair in rows]
            places = {key: place for place, key in enumerate(keys)}
            facts = _facts(keys, baselines)
            labels = [{"group": group.label, "label": row.label} for group, row in rows]
            named = [one | label for one, label in zip(facts, labels, strict=True)]
            found.append({"benchmark": str(benchmark), "rows": named, "table": packed(table, places)})
    return found


def _facts(keys: list[RowKey], baselines: set[str]) -> list[dict[str, Any]]:
    """Model and quantizer of each row, and its first row without adaptation."""
    sources = {key[:4]: place for place, key in reversed(list(enumerate(keys))) if key.method in baselines}
    return [
        {"model": key.model, "quantization": key.quantization, "source": sources.get(key[:4])} for key in keys
    ]
