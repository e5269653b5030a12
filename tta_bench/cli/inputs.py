"""Turn arguments into what commands work on, and print what they found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

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
    """The benchmark of a file after the options were applied, and its cells; `fetch` downloads weights."""
    from tta_bench import config, grid
    from tta_bench.config.smoke import shrunk

    overrides = list(override or [])
    if limit is not None:
        overrides.append(f"stream.limit={limit}")
    benchmark = config.load(file, overrides)
    if micro:
        benchmark = shrunk(benchmark)
    if presets is not None:
        from tta_bench.tune.presets_file import applied

        benchmark = applied(benchmark, presets)
    if fetch:  # cell keys contain the hashes of the weights
        config.fetch(benchmark)
    return benchmark, grid.expand(benchmark, str(file))


def narrowed(cells: Any, only: list[str] | None) -> Any:
    """The cells that match --only."""
    from tta_bench import grid

    return grid.only(cells, only or [])


def frame_of(
    results: Path,
    names: list[str] | None,
    plan: Path | None = None,
    override: list[str] | None = None,
    earlier: bool = False,
) -> Any:
    """The records of benchmarks, or with `plan` what is known before a run."""
    from tta_bench.tables import frame

    if plan is None:
        stores = [store_of(results, name) for name in names or (None,)]
        loaded = frame.load(*stores, earlier=earlier)
        tell_omissions(stores, earlier)
        return loaded
    from tta_bench.tables.forecast import forecast

    return forecast(grid_of(plan, override)[1])


def store_of(results: Path, name: str | None) -> Any:
    from tta_bench.storage.manifest import benchmarks
    from tta_bench.storage.store import ResultStore

    found = benchmarks(results)
    if not found:
        raise UserError(f"{results}: no results here. Run `tta-bench run FILE` first, or set --results DIR.")
    if name is not None and name not in found:
        raise UserError(f'{results}: no benchmark "{name}". There: {", ".join(found)}.')
    if name is None and len(found) > 1:
        say(f"{len(found)} benchmarks in {results}; showing {found[0]}, the last run.", error=True)
    return ResultStore(results, name or found[0])


def tell_omissions(stores: Any, earlier: bool = False) -> None:
    """Print which files are damaged, and unless they are shown, how many cells earlier runs completed."""
    for note in [note for store in stores for note in store.damage.values()]:
        say(note, error=True)
    for store in () if earlier else stores:
        if found := store.earlier():
            rounds = ", ".join(map(str, sorted({cell["rounds"] for cell in found})))
            text = f"{len(found)} complete cells of earlier runs (rounds: {rounds}) are not shown"
            say(f"{store.folder}: {text}; see them with `tta-bench table --earlier`.", error=True)


def show(found: Any, as_json: bool, failed: bool = False) -> None:
    """Print a description as text, or as JSON; exit with 1 if a check has failed."""
    say(json.dumps(found.data) if as_json else found.text)
    if failed:
        raise typer.Exit(1)
