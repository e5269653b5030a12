"""A cell's records, and the lines that hold them: JSON and its checksum, so that damage is noticed.

A domain that was computed in one round and repeats in others is one line, which lists its `rounds`.
Everywhere else it is one record for each round.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

Record = dict[str, Any]


def round_and_domain(record: Record) -> tuple[Any, ...]:
    """Round, corruption, severity and visit of a record; a cell that could not run at all has none.

    Only where a round comes to a domain several times do records say which visit they are about.
    """
    return (record.get("round"), record.get("corruption"), record.get("severity"), record.get("visit", 1))


def visits_of(row: Record) -> list[list[tuple[Any, ...]]]:
    """Corruption, severity and number of the visits of each round of a cell in a manifest.

    One list if all rounds have the same.
    """
    once = [[(*domain, 1) for domain in row["domains"]]]
    return [[tuple(visit) for visit in visits] for visits in row.get("visits", once)]


def visits_in(visits: Sequence[Any], round: int) -> Any:
    """Those of one round, from a list for each round or one for all."""
    return visits[0 if len(visits) == 1 else round - 1]


def cell_status(records: Sequence[Record], expected: int) -> str:
    """`done`, `unsupported`, `failed` or `missing`, from a cell's records."""
    for state in ("unsupported", "failed"):
        if any(record["status"] == state for record in records):
            return state
    return "done" if len(set(map(round_and_domain, records))) == expected else "missing"


def latest_results(records: Iterable[Record]) -> list[Record]:
    """The successful records, one for each round and domain: the one written last."""
    return list({round_and_domain(record): record for record in records if record["status"] == "ok"}.values())


# -- rounds that repeat ------------------------------------------------------------------------------


def collapsed(records: Iterable[Record]) -> list[Record]:
    """The records as lines hold them: one for a computed round and all rounds that repeat it."""
    lines: list[list[Record]] = []  # each with a computed record and its repetitions
    by_domain: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        where = round_and_domain(record)
        repeats = record["status"] == "ok" and "repeats" in record
        line = by_domain.get((record["repeats"], *where[1:])) if repeats else None
        # A second record of a round and domain is a line of its own, after the first: the last one counts.
        if line is None or where in by_domain or record != _repeated(line[0], record["round"]):
            line = []
            lines.append(line)
        line.append(record)
        by_domain[where] = line
    return [_joined(line) for line in lines]


def _repeated(record: Record, round: int) -> Record:
    return record | {"round": round, "repeats": record["round"]}


def _joined(line: list[Record]) -> Record:
    if len(line) == 1:
        return line[0]
    common = {name: value for name, value in line[0].items() if name != "round"}
    return common | {"rounds": [record["round"] for record in line]}


def expanded(record: Record) -> list[Record]:
    """The records of a line, one for each of its rounds: the inverse of `collapsed`."""
    if record["status"] != "ok" or "rounds" not in record:
        return [record]
    first, *later = record["rounds"]
    computed = {name: value for name, value in record.items() if name != "rounds"} | {"round": first}
    return [computed, *(_repeated(computed, round) for round in later)]


# -- lines -------------------------------------------------------------------------------------------


def encode(record: Record) -> bytes:
    """A record as a line; keys are sorted, so that reading and writing a record changes no byte."""
    text = as_json(record, separators=(",", ":"), allow_nan=False, sort_keys=True)
    return text + f"\t{zlib.crc32(text):08x}\n".encode()


def as_json(record: Record, **how: Any) -> bytes:
    """A record as JSON; what UTF-8 cannot encode, e.g. in odd file names, becomes a question mark."""
    return json.dumps(record, ensure_ascii=False, **how).encode("utf-8", "replace")


def intact(content: bytes, key: str, format: TypeAdapter[Any]) -> Iterator[tuple[Record, bytes]]:
    """The records of lines whose checksum, format and key are right, each with the bytes of its line.

    `format` is that of a list of records.
    """
    lines = [line for line in content.split(b"\n")[:-1] if line[-9:] == b"\t%08x" % zlib.crc32(line[:-9])]
    found = _validated(lines, format) or [
        each for line in lines for each in _validated([line], format) or [None]
    ]
    for record, line in zip(found, lines, strict=True):
        if record is not None and record["key"] == key:
            yield record, line + b"\n"


def _validated(lines: Sequence[bytes], format: TypeAdapter[Any]) -> list[Record | None]:
    """The record of each line, read at once, which is faster; empty if any line does not fit the format."""
    try:
        found: list[Record | None] = format.validate_json(
            b"[" + b",".join(line[:-9] for line in lines) + b"]"
        )
    except ValidationError:
        return []
    return found if len(found) == len(lines) else []
