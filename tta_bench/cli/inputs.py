"""From arguments to what commands work on, and from what they found to the screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tta_bench.errors import UserError
from tta_bench.terminal import say


def grid_of(
    file: Path,
    override: list[str] | None,
    limit: int | None = None,
    micro: bool = False,
    fetch: bool = False,
    presets: Path | None = None,
) -> tuple[Any, Any]:
    """The benchmark of a file, as the flags change it, and its cells; `fetch` downloads weights."""
    from tta_bench import config, grid
    from tta_bench.micro import shrunk

    overrides = list(override or [])
    if limit is not None:
        overrides.append(f"stream.limit={limit}")
    benchmark = config.load(file, overrides)
    if micro:
        benchmark = shrunk(benchmark)
    if presets is not None:
        from tta_bench.tune.presets_file import applied

        benchmark = applied(benchmark, presets)
    if fetch:  # before keys are made of their hashes
        config.fetch(benchmark)
    return benchmark, grid.expand(benchmark, str(file))


def narrowed(cells: Any, only: list[str] | None) -> Any:
    """The cells that fit --only."""
    from tta_bench import grid

    return grid.only(cells, only or [])


def frame_of(
    results: Path,
    names: list[str] | None,
    plan: Path | None = None,
    override: list[str] | None = None,
    earlier: bool = False,
) -> Any:
    """The records of benchmarks, or what a file makes known before there are any."""
    from tta_bench import frame

    if plan is None:
        stores = [store_of(results, name) for name in names] if names else [store_of(results, None)]
        loaded = frame.load(*stores, earlier=earlier)
        tell_damage(stores)
        if not earlier:
            tell_earlier(stores)
        return loaded
    from tta_bench.forecast import forecast

    return forecast(grid_of(plan, override)[1])


def store_of(results: Path, name: str | None) -> Any:
    from tta_bench.store import ResultStore, benchmarks

    found = benchmarks(results)
    if not found:
        raise UserError(f"{results}: no results here. Run `tta-bench run FILE` first, or --results DIR.")
    if name is not None and name not in found:
        raise UserError(f'{results}: no benchmark "{name}". There: {", ".join(found)}.')
    if name is None and len(found) > 1:
        say(f"{len(found)} benchmarks in {results}; showing {found[0]}, the last run.", error=True)
    return ResultStore(results, name or found[0])


def tell_damage(stores: Any) -> None:
    """Name the files of which records were left out when they were read."""
    for store in stores:
        for note in store.damage.values():
            say(note, error=True)


def tell_earlier(stores: Any) -> None:
    """Say that there are complete cells of runs before the last, which had another protocol."""
    for store in stores:
        if found := store.earlier():
            rounds = ", ".join(map(str, sorted({cell["rounds"] for cell in found})))
            text = f"{len(found)} complete cells of earlier runs (rounds: {rounds}) are not shown"
            say(f"{store.folder}: {text}; see them with `tta-bench table --earlier`.", error=True)


def show(found: Any, as_json: bool) -> None:
    """Print a description: its JSON for machines, its text for people."""
    say(json.dumps(found.data) if as_json else found.text)
