"""Commands on a benchmark file: run, tune, plan and validate it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli import options
from tta_bench.cli.app import app
from tta_bench.cli.output import show, tell
from tta_bench.execution.interrupt import code_of_stop
from tta_bench.terminal import say, terminal_width

WIDTH_OF_A_FILE = 120  # characters in a line of tables that are not printed on a terminal


@app.command()
def run(
    file: options.File,
    results: options.Results = Path("results"),
    engine: options.Engine = None,
    workers: options.Workers = None,
    device: options.Device = None,
    only: options.Only = None,
    limit: options.Limit = None,
    override: options.Override = None,
    micro: options.Micro = False,
    overwrite: options.Overwrite = "missing",
    ray_address: options.RayAddress = None,
    presets: options.Presets = None,
    keep_stale: Annotated[
        bool,
        typer.Option(
            "--keep-stale", help="keep finished cells although the code of their plugins has changed"
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="do not print progress")] = False,
    tables: Annotated[
        bool,
        typer.Option("--tables", help="print accuracy by round and cost at the end, and next steps"),
    ] = False,
) -> None:
    """Run the cells of FILE that have no result yet. An interrupted run continues where it stopped."""
    from tta_bench.commands import run as running

    try:
        ended = running.run(
            file,
            results=results,
            limit=limit,
            engine=engine,
            workers=workers,
            device=device,
            only=only,
            override=override or (),
            micro=micro,
            overwrite=overwrite,
            ray_address=ray_address,
            presets=presets,
            keep_stale=keep_stale,
            quiet=quiet,
        )
    except KeyboardInterrupt as stopped:
        tell("Stopped. All records are kept; run the same command again to continue.", quiet)
        raise typer.Exit(code_of_stop(stopped)) from None
    if tables:
        width = terminal_width() or WIDTH_OF_A_FILE
        say("\n".join(ended.results.table(layout).to_text(width) for layout in ("long-term", "cost")))
    tell(ended, quiet)
    if tables:
        tell(_next_steps(results), quiet)
    if ended.failed:
        tell("Some cells failed. `tta-bench status` shows why; `--overwrite failed` runs them again.", quiet)
        raise typer.Exit(1)


def _next_steps(results: Path) -> str:
    """Three commands to go on with."""
    folder = "" if results == Path("results") else f" --results {results}"
    steps = {
        f"tta-bench report{folder}": "the same with charts, as one HTML file",
        f"tta-bench table --format latex{folder}": "the tables for a paper",
        "tta-bench new method my-method": "a method of your own; docs/first-method.md explains it",
    }
    longest = max(map(len, steps))
    return "\n".join(["Next:", *(f"  {command:{longest}}  # {what}" for command, what in steps.items())])


@app.command()
def tune(
    file: options.File,
    results: options.Results = Path("results"),
    output: Annotated[
        Path, typer.Option("--output", help="presets file to write, for `run --presets`")
    ] = Path("presets.yaml"),
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="forward passes (in images) for each method on each model; a backward pass counts as two",
        ),
    ] = None,
    workers: options.Workers = None,
    only: options.Only = None,
    override: options.Override = None,
    ray_address: options.RayAddress = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="do not print progress")] = False,
) -> None:
    """Search the methods' parameters on held-out corruptions, with the same budget for each method.

    An interrupted search continues where it stopped.
    """
    from tta_bench import config
    from tta_bench.tune import command

    benchmark = config.load(file, override or [])
    request = command.TuneRequest(
        benchmark, str(file), results, output, budget, workers, ray_address, only or [], quiet
    )
    try:
        say(command.run(request))
    except KeyboardInterrupt as stopped:
        say("Stopped. All finished trials are kept; run the same command again to continue.", error=True)
        raise typer.Exit(code_of_stop(stopped)) from None
    say(f"Presets in {output}.", error=True)


@app.command()
def plan(
    file: options.File,
    override: options.Override = None,
    limit: options.Limit = None,
    only: options.Only = None,
    micro: options.Micro = False,
    as_json: options.AsJson = False,
) -> None:
    """Print what a run of FILE would do: cells, shared passes, memory. No data is needed."""
    from tta_bench.commands import plan as planning

    show(planning.plan(file, limit=limit, only=only, override=override or (), micro=micro), as_json)


@app.command()
def validate(
    file: options.File,
    override: options.Override = None,
    micro: options.Micro = False,
    as_json: options.AsJson = False,
) -> None:
    """Check FILE, its plugins, models and data, and print all problems together."""
    from tta_bench.commands.inputs import grid_of
    from tta_bench.execution.run import check_inputs
    from tta_bench.planning.cautions import cautions

    benchmark, cells, _ = grid_of(file, override=override or (), micro=micro, download=True)
    data = check_inputs(cells)
    for text in benchmark.reduced:
        say(f"--micro: {text}.", error=True)
    for warning in cautions(cells, data):
        say(f"Warning: {warning}", error=True)
    counts = {
        "name": benchmark.name,
        "cells": len(cells),
        "records": sum(cell.records_expected for cell in cells),
    }
    text = f"{file}: valid. {counts['cells']} cells, {counts['records']} records."
    say(json.dumps(counts) if as_json else text)
