"""A benchmark from whatever a user gives (a path, a mapping, or a Benchmark), and its cells."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tta_bench.config import Benchmark, fetch, load, parse
from tta_bench.config.smoke import shrunk
from tta_bench.config.yaml import override_
from tta_bench.errors import UserError

if TYPE_CHECKING:
    from tta_bench.grid import Cell

Source = str | PathLike[str] | Mapping[str, Any] | Benchmark


def benchmark(
    source: Source,
    *,
    override: Sequence[str] = (),
    limit: int | None = None,
    micro: bool = False,
    presets: str | PathLike[str] | None = None,
) -> Benchmark:
    """The checked benchmark of a path, a mapping or a Benchmark, with changes.

    `override` sets values as on the command line (`"stream.rounds=2"`), `limit` the images per domain;
    `micro` makes a smoke run of it; `presets` is a file from `tta-bench tune`.
    """
    if isinstance(source, Benchmark):
        found = _limited(source, override, limit)
    else:
        overrides = [*override, *([] if limit is None else [f"stream.limit={limit}"])]
        found = _read(source, overrides)
    if micro:
        found = shrunk(found)
    if presets is not None:
        from tta_bench.tune.presets_file import applied

        found = applied(found, Path(presets))
    return found


def _read(source: str | PathLike[str] | Mapping[str, Any], overrides: Sequence[str]) -> Benchmark:
    """The benchmark of a file or a mapping, after overrides."""
    if not isinstance(source, Mapping):
        return load(fspath(source), overrides)
    raw = copy.deepcopy(dict(source))
    for each in overrides:
        override_(raw, each)
    return parse(raw)


def _limited(checked: Benchmark, override: Sequence[str], limit: int | None) -> Benchmark:
    """A benchmark with another limit; other values of a checked benchmark cannot be changed by a path."""
    if override:
        problem = f"override {override[0]}: the benchmark is already checked."
        raise UserError(f"{problem} Give the file or the dict that it was made from.")
    if limit is None:
        return checked
    if limit < 1:
        raise UserError(f"limit {limit}: there must be at least one image per domain.")
    return replace(checked, stream=checked.stream.model_copy(update={"limit": limit}))


class Grid(NamedTuple):
    """A benchmark, its cells, and those of them that `only` selects."""

    benchmark: Benchmark
    cells: list[Cell]
    chosen: list[Cell]


def grid_of(
    source: Source, *, only: Sequence[str] | None = None, download: bool = False, **changes: Any
) -> Grid:
    """The benchmark of a source after `changes` (see `benchmark`), and its cells.

    `download` fetches weights first, because keys of cells contain their hashes.
    """
    from tta_bench import grid

    found = benchmark(source, **changes)
    if download:
        fetch(found)
    cells = grid.expand(found, place_of(source))
    return Grid(found, cells, grid.only(cells, only or ()))


def place_of(source: Source) -> str:
    """What messages call a source: its path, or `benchmark`."""
    return "benchmark" if isinstance(source, (Mapping, Benchmark)) else fspath(source)
