"""Commands about a benchmark file: run it, tune it, tell what it would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli.app import app
from tta_bench.cli.inputs import grid_of, narrowed, show
from tta_bench.cli.options import (
    AsJson,
    Device,
    Engine,
    File,
    Limit,
    Micro,
    Only,
    Override,
    Presets,
    RayAddress,
    Results,
    Workers,
)
from tta_bench.errors import UserError
from tta_bench.terminal import say


@app.command()
def run(
    file: File,
    results: Results = Path("results"),
    engine: Engine = None,
    workers: Workers = None,
    device: Device = None,
    only: Only = None,
    limit: Limit = None,
    override: Override = None,
    micro: Micro = False,
    overwrite: Annotated[
        str, typer.Option(help="what to compute again: missing (nothing), failed, all")
    ] = "missing",
    ray_address: RayAddress = None,
    presets: Presets = None,
    keep_stale: Annotated[
        bool, typer.Option("--keep-stale", help="keep finished cells that were computed by other plugin code")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress")] = False,
) -> None:
    """Run the cells of FILE that have no result yet; a killed run goes on where it stopped."""
    from tta_bench import run as running
    from tta_bench.progress import Progress

    if overwrite not in running.OVERWRITE:
        raise UserError(f"--overwrite {overwrite}: unknown. Use one of {', '.join(running.OVERWRITE)}.")
    benchmark, cells = grid_of(file, override, limit, micro, fetch=True, presets=presets)
    section = benchmark.run
    runner = running.make_runner(
        engine or section.engine, workers or section.workers, running.policy(section, device), ray_address
    )
    progress = Progress(quiet)
    try:
        summary = running.run(
            benchmark.name, cells, runner, results, overwrite, progress, narrowed(cells, only), keep_stale
        )
    except KeyboardInterrupt:
        progress.note("Stopped. What is recorded is kept; the same command goes on from there.")
        raise typer.Exit(130) from None
    states = ", ".join(f"{count} {state}" for state, count in sorted(summary.states.items()))
    ran = f"ran {summary.ran}" if summary.ran else "nothing left to run"
    progress.note(f"{benchmark.name}: {ran}; {states}. Results in {summary.folder}.")
    if summary.failed:
        progress.note("Some cells failed: `tta-bench status` says why, --overwrite failed retries.")
        raise typer.Exit(1)


@app.command()
def tune(
    file: File,
    results: Results = Path("results"),
    output: Annotated[
        Path, typer.Option("--output", help="presets file to write, for `run --presets`")
    ] = Path("presets.yaml"),
    budget: Annotated[
        int | None,
        typer.Option(min=1, help="images forward for each method on each model; one backward is two"),
    ] = None,
    workers: Workers = None,
    only: Only = None,
    override: Override = None,
    ray_address: RayAddress = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress")] = False,
) -> None:
    """Search the methods' parameters on held-out corruptions, the same budget each; killed, it goes on."""
    from tta_bench import config
    from tta_bench.tune import command

    benchmark = config.load(file, override or [])
    request = command.Request(
        benchmark, str(file), results, output, budget, workers, ray_address, only or [], quiet
    )
    try:
        say(command.run(request))
    except KeyboardInterrupt:
        say("Stopped. What was tried is kept; the same command goes on from there.", error=True)
        raise typer.Exit(130) from None
    say(f"Presets in {output}.", error=True)


@app.command()
def plan(
    file: File,
    override: Override = None,
    limit: Limit = None,
    only: Only = None,
    micro: Micro = False,
    as_json: AsJson = False,
) -> None:
    """Print what a run of FILE would do: cells, shared passes, memory; no data is needed."""
    from tta_bench.planning import describe

    benchmark, cells = grid_of(file, override, limit, micro)
    show(describe(benchmark.name, narrowed(cells, only)), as_json)


@app.command()
def validate(file: File, override: Override = None, micro: Micro = False, as_json: AsJson = False) -> None:
    """Check FILE, its plugins, models and data; print every problem at once."""
    from tta_bench.cautions import cautions
    from tta_bench.run import check_inputs

    benchmark, cells = grid_of(file, override, None, micro, fetch=True)
    data = check_inputs(cells)
    for warning in cautions(cells, data):
        say(f"Warning: {warning}", error=True)
    counts = {
        "name": benchmark.name,
        "cells": len(cells),
        "records": sum(cell.records_expected for cell in cells),
    }
    text = f"{file}: valid. {counts['cells']} cells, {counts['records']} records."
    say(json.dumps(counts) if as_json else text)
