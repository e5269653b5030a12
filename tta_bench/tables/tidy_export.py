"""The tidy frame as a file: `tta-bench table --layout tidy`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tta_bench.errors import UserError, suggest
from tta_bench.files import write_errors

if TYPE_CHECKING:
    from pandas import DataFrame

FORMATS = ("csv", "json", "parquet")
LAYOUT = "tidy"


def export(frame: DataFrame, format: str, output: Path | None) -> str:
    """The frame as text; empty if it was written to a file."""
    if format not in FORMATS:
        raise UserError(
            f'table tidy: unknown format "{format}". {suggest(format, list(FORMATS), "There are")}'
        )
    if output is None:
        if format == "parquet":
            raise UserError("table tidy: parquet is not text. Name a file with --output FILE.")
        return _text(frame, format)
    with write_errors(output, "Choose another --output."):
        if format == "parquet":
            _refuse_without_pyarrow()
            frame.to_parquet(output, index=False)
        else:
            output.write_text(_text(frame, format) + "\n", encoding="utf-8")
    return ""


def _refuse_without_pyarrow() -> None:
    if find_spec("pyarrow") is None:
        raise UserError("table tidy: parquet needs pyarrow. Install it: pip install pyarrow.")


def _text(frame: DataFrame, format: str) -> str:
    """CSV, or a JSON list with an object for each row."""
    if format == "csv":
        return frame.to_csv(index=False).rstrip("\n")
    return str(frame.to_json(orient="records", double_precision=10))
