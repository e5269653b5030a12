"""Records as lines: JSON, a checksum of it, and what is left of a file that is torn, edited or forged."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

Record = dict[str, Any]


def encode(record: Record) -> bytes:
    """A record as a line of a log; sorted, so that one that was read is written again as it was."""
    text = as_json(record, separators=(",", ":"), allow_nan=False, sort_keys=True)
    return text + f"\t{zlib.crc32(text):08x}\n".encode()


def as_json(record: Record, **how: Any) -> bytes:
    """A record as JSON; what UTF-8 cannot hold, e.g. parts of odd file names, becomes a question mark."""
    return json.dumps(record, ensure_ascii=False, **how).encode("utf-8", "replace")


def intact(content: bytes, key: str, format: TypeAdapter[Any]) -> Iterator[tuple[Record, bytes]]:
    """The cell's records whose checksum and format are right, each with its bytes."""
    for line in content.split(b"\n")[:-1]:
        text, _, checksum = line.rpartition(b"\t")
        if checksum != f"{zlib.crc32(text):08x}".encode():
            continue
        try:
            record = format.validate_json(text)
        except ValidationError:
            continue
        if record["key"] == key:
            yield record, line + b"\n"
