"""`tta-bench list references NAME`: how its numbers were made, which cells they are of, and the numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any

from tta_bench.description import Description, columns
from tta_bench.tables.references import load
from tta_bench.tables.references.reference import Published, Reference


def describe(name: str, origin: str) -> Description:
    """A reference as text, and as data with every number."""
    found = load(name)
    sources = dict.fromkeys(row.setting.source for row in found.rows)
    head = [f"references {name} ({origin})", f"{found.title}.", f"Source: {'; '.join(sources)}."]
    if found.compares is not None:
        head.append("`tta-bench compare` compares cells with it as a whole, not number by number.")
    if any(row.error for row in found.rows):
        head.append("The numbers were printed as errors in %; here they are accuracies, 100 minus the error.")
    parts = [
        "\n".join(head),
        columns(list(_tables(found))),
        "Numbers belong to cells of these plugins with these parameters:\n" + columns(list(_cells(found))),
        columns(list(_numbers(found))),
    ]
    return Description("\n\n".join(parts), {"name": name, "title": found.title, "numbers": _data(found)})


def _tables(reference: Reference) -> Iterator[dict[str, Any]]:
    """What the numbers of each published table share, a row for each network."""
    counts = Counter((row.table, row.model) for row in reference.rows)
    seen: dict[tuple[str, str], Published] = {}
    for row in reference.rows:
        seen.setdefault((row.table, row.model), row)
    for place, row in seen.items():
        yield {
            "table": row.table,
            "numbers": counts[place],
            "data": min(row.wanted.data) if len(row.wanted.data) == 1 else _published_data(row),
            "network": row.model,
            "weights": row.lineage,
            "protocol": row.setting.protocol,
            "images": row.wanted.images,
            "confidence": row.setting.confidence,
        }


def _published_data(row: Published) -> str:
    """The published data and what may stand in for it."""
    return " or ".join(sorted(row.wanted.data, key=len, reverse=True))


def _cells(reference: Reference) -> Iterator[dict[str, str]]:
    """The plugins and parameters behind the names of methods."""
    seen = set()
    for row in reference.rows:
        wanted = row.wanted
        settings = ", ".join(f"{name}={json.dumps(value)}" for name, value in wanted.settings.items())
        reset = "any" if wanted.reset is None else wanted.reset
        cell = (row.method, wanted.method, row.model, wanted.model or "–", settings, reset, wanted.missing)
        if cell not in seen:
            seen.add(cell)
            names = ("published as", "method", "network", "model", "parameters", "reset", "no cell, because")
            yield dict(zip(names, cell, strict=True))


def _numbers(reference: Reference) -> Iterator[dict[str, str]]:
    """All numbers, with those of the domains of a row in one line."""
    numbers = [row for row in reference.rows if reference.compares is None or row.column == "average"]
    for place, rows in groupby(numbers, key=_line):
        names = ("table", "network", "bits", "method", "round", "metric")
        values = [(row.column, f"{row.value:.{_digits(row)}f}") for row in rows]
        text = values[0][1] if len(values) == 1 else ", ".join(" ".join(each) for each in values)
        yield dict(zip(names, place, strict=True)) | {"value": text}


def _line(row: Published) -> tuple[str, ...]:
    return row.table, row.model, row.bits, row.method, str(row.round or ""), row.metric


def _digits(row: Published) -> int:
    """How many decimals a number was printed with."""
    return len(f"{2 * row.half_step:g}".partition(".")[2]) if row.half_step else 1


def _data(reference: Reference) -> list[dict[str, Any]]:
    """Every number with all that is known of it, for programs."""
    found = [asdict(row) for row in reference.rows]
    for row in found:
        row["wanted"] |= {name: sorted(row["wanted"][name]) for name in ("data", "other_weights")}
    return found
