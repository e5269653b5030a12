"""Which cells a benchmark or a command line asks for: include, exclude, `--only`."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from pydantic import ValidationError

from tta_bench.config.schema import Filter
from tta_bench.errors import UserError
from tta_bench.grid.cell import Cell


def wanted(cell: Cell, include: Sequence[Filter], exclude: Sequence[Filter]) -> bool:
    """Whether a cell matches some filter of `include`, if it has any, and none of `exclude`."""
    included = not include or any(matches(cell, each) for each in include)
    return included and not any(matches(cell, each) for each in exclude)


def only(cells: Sequence[Cell], texts: Sequence[str]) -> list[Cell]:
    """The cells that match `--only key=pattern`: any pattern given for a key, and all keys."""
    kept = list(cells)
    by_key: dict[str, list[Cell]] = {}
    for text in texts:
        key, wanted = _only_filter(text)
        found = [cell for cell in cells if matches(cell, wanted)]
        if not found:
            raise UserError(f"--only {text}: no cell matches. `tta-bench plan` lists them.")
        by_key.setdefault(key, []).extend(found)
    for found in by_key.values():
        keys = {cell.key for cell in found}
        kept = [cell for cell in kept if cell.key in keys]
    if cells and not kept:
        flags = " ".join(f"--only {text}" for text in texts)
        raise UserError(f"{flags}: no cell matches all of it. `tta-bench plan` lists them.")
    return kept


def _only_filter(text: str) -> tuple[str, Filter]:
    """Key and filter of one `--only key=pattern`."""
    key, equals, value = text.partition("=")
    if not equals or key not in Filter.model_fields:
        known = ", ".join(Filter.model_fields)
        raise UserError(f"--only {text}: not of the form key=pattern. Keys: {known}.")
    try:
        return key, Filter.model_validate({key: value})
    except ValidationError:
        raise UserError(f"--only {text}: {value!r} does not fit {key}.") from None


def matches(cell: Cell, wanted: Filter) -> bool:
    """Whether a cell matches every pattern of a filter, by plugin name or by row name."""
    pairs = [
        (wanted.model, (cell.model.use, cell.labels.model)),
        (wanted.quantizer, (cell.quantizer.use, cell.labels.quantizer)),
        (wanted.method, (cell.method.use, cell.labels.method)),
        (wanted.bits, (cell.bits,)),
        (None if wanted.seed is None else str(wanted.seed), (str(cell.seed),)),
    ]
    return all(
        pattern is None or any(name == pattern or fnmatchcase(name, pattern) for name in names)
        for pattern, names in pairs
    )
