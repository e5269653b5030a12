"""The command line: parsing only. Heavy imports happen inside the commands that need them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tta_bench import __version__
from tta_bench.errors import UserError

app = typer.Typer(
    help="Compare test-time adaptation methods on quantised image classifiers: one YAML in, tables out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

File = Annotated[Path, typer.Argument(help="benchmark file, e.g. benchmark.yaml")]
Results = Annotated[Path, typer.Option("--results", help="folder of results")]
Override = Annotated[
    list[str] | None, typer.Option("-o", "--override", help="path=value, e.g. stream.rounds=2")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="keep matching cells: method=tent, model=vit*, bits=W8A8, seed=1"),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="images a domain")]
Engine = Annotated[str | None, typer.Option("--engine", help="ray or local")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="worker processes")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Name = Annotated[str | None, typer.Option("--name", help="which benchmark of the results folder")]
Names = Annotated[
    list[str] | None, typer.Option("--name", help="which benchmark of the results folder; several: together")
]
Micro = Annotated[
    bool, typer.Option("--micro", help="smoke run: embedded images and networks in place of the file's")
]
RayAddress = Annotated[str | None, typer.Option(help="join this Ray cluster instead of starting one")]
Presets = Annotated[
    Path | None, typer.Option("--presets", help="what `tta-bench tune` has found; what FILE says itself wins")
]
Planned = Annotated[
    Path | None, typer.Option("--plan", help="benchmark file: what is known of it before any run")
]
Round = Annotated[int | None, typer.Option(help="which round, where one is shown; default: the last")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tta-bench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    file: File,
    results: Results = Path("results"),
    engine: Engine = None,
    workers: Workers = None,
    only: Only = None,
    limit: Limit = None,
    override: Override = None,
    micro: Micro = False,
    overwrite: Annotated[
        str, typer.Option(help="what to compute again: missing (nothing), failed, all")
    ] = "missing",
    ray_address: RayAddress = None,
    presets: Presets = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress")] = False,
) -> None:
    """Run the cells of FILE that have no result yet; a killed run goes on where it stopped."""
    from tta_bench import run as running
    from tta_bench.progress import Progress

    if overwrite not in running.OVERWRITE:
        raise UserError(f"--overwrite {overwrite}: unknown. Use one of {', '.join(running.OVERWRITE)}.")
    benchmark, cells = _grid(file, override, limit, micro, fetch=True, presets=presets)
    section = benchmark.run
    runner = running.make_runner(
        engine or section.engine, workers or section.workers, running.policy(section), ray_address
    )
    progress = Progress(quiet)
    try:
        summary = running.run(
            benchmark.name, cells, runner, results, overwrite, progress, _narrow(cells, only)
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
    out: Annotated[Path, typer.Option(help="presets file to write, for `run --presets`")] = Path(
        "presets.yaml"
    ),
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
        benchmark, str(file), results, out, budget, workers, ray_address, only or [], quiet
    )
    try:
        print(command.run(request))
    except KeyboardInterrupt:
        print("Stopped. What was tried is kept; the same command goes on from there.", file=sys.stderr)
        raise typer.Exit(130) from None
    print(f"Presets in {out}.", file=sys.stderr)


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

    benchmark, cells = _grid(file, override, limit, micro)
    _print(describe(benchmark.name, _narrow(cells, only)), as_json)


@app.command()
def validate(file: File, override: Override = None, micro: Micro = False, as_json: AsJson = False) -> None:
    """Check FILE, its plugins, models and data; print every problem at once."""
    from tta_bench.run import check_inputs

    benchmark, cells = _grid(file, override, None, micro, fetch=True)
    check_inputs(cells)
    counts = {
        "name": benchmark.name,
        "cells": len(cells),
        "records": sum(cell.records_expected for cell in cells),
    }
    text = f"{file}: valid. {counts['cells']} cells, {counts['records']} records."
    print(json.dumps(counts) if as_json else text)


@app.command()
def table(
    results: Results = Path("results"),
    name: Names = None,
    layout: Annotated[
        str,
        typer.Option(
            help="per-corruption, long-term, cost, pairs, gap, ablation, sweep, bank, datasets, "
            "reset-vs-continual; "
            "`all` prints the first three"
        ),
    ] = "all",
    format: Annotated[
        str, typer.Option("--format", help="text, latex, markdown, csv, json or html")
    ] = "text",
    round: Round = None,
    parameter: Annotated[str | None, typer.Option(help="of a sweep, if several parameters vary")] = None,
    reference: Annotated[
        str | None, typer.Option(help="add the published rows, e.g. zoa-mm25, in italics")
    ] = None,
    plan: Planned = None,
    override: Override = None,
    allow_mixed: Annotated[
        bool, typer.Option(help="tabulate records of different protocols or versions together")
    ] = False,
) -> None:
    """Print the tables of a results folder, or what --plan FILE makes known of them beforehand."""
    from tta_bench.render import render
    from tta_bench.table import build

    loaded = _frame(results, name, plan, override)
    options: list[tuple[str, int | None]] = [(layout, round)]
    if layout == "all":  # a run over rounds has no round of its own
        options = [("per-corruption", round), ("long-term", None), ("cost", round)]
    shared = {"allow_mixed": allow_mixed, "parameter": parameter, "reference": reference}
    built = [build(loaded, each, round=at, **shared) for each, at in options]
    texts = [render(each, format).rstrip("\n") for each in built]
    as_list = format == "json" and layout == "all"
    print("[" + ",\n".join(texts) + "]" if as_list else "\n\n".join(texts))


@app.command()
def compare(
    results: Results = Path("results"),
    name: Names = None,
    reference: Annotated[str, typer.Option(help="which published numbers")] = "zoa-mm25",
    table: Annotated[str, typer.Option(help="of which of their tables, e.g. tab:cost")] = "*",
    points: Annotated[float, typer.Option(min=0, help="tolerance of an accuracy, in points")] = 0.5,
    percent: Annotated[float, typer.Option(min=0, help="tolerance of all else, in percent")] = 3.0,
    plan: Planned = None,
    override: Override = None,
    as_json: AsJson = False,
) -> None:
    """Print our numbers beside the published ones, with a verdict for each."""
    from tta_bench import compare as comparing
    from tta_bench.reference import load

    tolerance, published = comparing.Tolerance(points, percent), load(reference)
    found = comparing.compare(_frame(results, name, plan, override), published, tolerance, table)
    _print(comparing.describe(found, published, tolerance), as_json)


@app.command()
def figure(
    figure: Annotated[str, typer.Argument(help="motivation, online, rounds or pareto")],
    output: Annotated[
        Path | None, typer.Option("--output", help="file to write, .pdf, .png or .svg; default FIGURE.pdf")
    ] = None,
    results: Results = Path("results"),
    name: Names = None,
    round: Annotated[
        int | None, typer.Option(help="which round; default: the last, of an online curve the first")
    ] = None,
) -> None:
    """Draw a figure of a results folder."""
    from tta_bench.figures import draw

    path = output or Path(f"{figure}.pdf")
    draw(_frame(results, name), figure, path, round)
    print(path)


@app.command()
def report(
    results: Results = Path("results"),
    name: Names = None,
    out: Annotated[Path, typer.Option(help="file to write")] = Path("report.html"),
    reference: Annotated[str, typer.Option(help="which published numbers to show")] = "zoa-mm25",
    allow_mixed: Annotated[
        bool, typer.Option(help="show records of different protocols or versions together")
    ] = False,
) -> None:
    """Write one HTML page about a results folder: leaderboard, charts, provenance; it opens offline."""
    from tta_bench.report import gather, write

    stores = [_store(results, each) for each in name] if name else [_store(results, None)]
    size = write(gather(stores, reference, allow_mixed), out)
    print(f"{out}: {size / 2**20:.1f} MiB")


@app.command()
def status(
    results: Results = Path("results"),
    name: Name = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="a live view, until all cells are over or Ctrl-C")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far the cells of a results folder are, and why any failed."""
    if watch:
        from rich.console import Console

        from tta_bench import watch as watching

        watching.watch(_store(results, name), Console())
        return
    from tta_bench.status import describe

    _print(describe(_store(results, name)), as_json)


@app.command()
def merge(
    sources: Annotated[list[Path], typer.Argument(help="folders of results, e.g. of several machines")],
    into: Annotated[Path, typer.Option("--into", help="folder of results to join them in, new or not")],
    name: Annotated[str | None, typer.Option("--name", help="only this benchmark; default: all")] = None,
    as_json: AsJson = False,
) -> None:
    """Join results folders; a cell that has different numbers in two of them is refused by name."""
    from tta_bench import merge as merging

    _print(merging.merge(sources, into, name), as_json)


@app.command()
def new(
    kind: Annotated[str, typer.Argument(help="method, quantizer, model or data")],
    name: Annotated[str, typer.Argument(help="what benchmark files will call it: letters, digits, dashes")],
    into: Annotated[Path, typer.Option("--into", help="where to put the package's folder")] = Path(),
) -> None:
    """Write the package of a new plugin: working code to start from, its test, a benchmark file."""
    from tta_bench import scaffold

    folder = scaffold.create(kind, name, into)
    print(scaffold.next_steps(kind, name, folder))


@app.command()
def doctor(
    results: Results = Path("results"),
    ray: Annotated[bool, typer.Option("--ray", help="start Ray, too, and let a worker answer")] = False,
    as_json: AsJson = False,
) -> None:
    """Check versions, devices, data, disk and tools of this machine, and say what to do about each."""
    from tta_bench import doctor as examining

    found = examining.describe(examining.examine(results, ray))
    _print(found, as_json)
    if not found.data["usable"]:
        raise typer.Exit(1)


@app.command("list")
def list_plugins(
    group: Annotated[
        str | None, typer.Argument(help="methods, quantizers, models, data or corruptions")
    ] = None,
    long: Annotated[bool, typer.Option("--long", help="import plugins and show their facts")] = False,
    as_json: AsJson = False,
) -> None:
    """List the installed plugins."""
    from tta_bench.listing import describe

    _print(describe(group, long), as_json)


@app.command()
def memory(
    model: Annotated[str, typer.Option(help="a model's name")],
    method: Annotated[str, typer.Option(help="a method's name")] = "source",
    quantizer: Annotated[str, typer.Option(help="a quantizer's name")] = "fp32",
    bits: Annotated[str | None, typer.Option(help="e.g. W8A8")] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    set: Annotated[list[str] | None, typer.Option("--set", help="method parameter, e.g. filter_k=20")] = None,
    as_json: AsJson = False,
) -> None:
    """Count the bytes of one adaptation step, without weights, data or GPU."""
    from tta_bench.planning import describe_memory

    _print(describe_memory(model, quantizer, bits, method, set or [], batch_size), as_json)


@app.command()
def quantize(
    model: Annotated[str, typer.Option(help="a model's name")],
    quantizer: Annotated[str, typer.Option(help="a quantizer's name")],
    bits: Annotated[str | None, typer.Option(help="e.g. W8A8")] = None,
    data: Annotated[str, typer.Option(help="data whose clean images calibrate")] = "cifar10-mini",
    set: Annotated[
        list[str] | None, typer.Option("--set", help="quantizer parameter, e.g. scale=minmax")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Calibrate, and print scales, clip rates and signal-to-noise of every site: which layer hurts."""
    from tta_bench.quantizing import describe

    _print(describe(model, quantizer, bits, data, set or []), as_json)


@app.command()
def check(
    plugin: Annotated[str, typer.Argument(help="a plugin's name, or group/name")],
    as_json: AsJson = False,
) -> None:
    """Run the contract suite on an installed plugin, yours or anybody's."""
    from tta_bench.listing import locate
    from tta_bench.testing import outcomes_of

    broken = 0
    found = []
    for outcome in outcomes_of(*locate(plugin)):
        broken += outcome.problem is not None
        found.append(vars(outcome))
        mark = "FAIL" if outcome.problem else "n/a " if outcome.skipped else "ok  "
        note = outcome.problem or outcome.skipped
        if not as_json:
            print(f"{mark}  {outcome.subject}: {outcome.check}" + (f" — {note}" if note else ""))
    if as_json:
        print(json.dumps(found))
    if broken:
        raise typer.Exit(1)


def _grid(
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
        for choice in benchmark.models:
            config.make(choice, "models").fetch()
    return benchmark, grid.expand(benchmark, str(file))


def _narrow(cells: Any, only: list[str] | None) -> Any:
    """The cells that fit every --only."""
    from tta_bench import grid

    for text in only or []:
        cells = grid.only(cells, text)
    return cells


def _frame(
    results: Path, names: list[str] | None, plan: Path | None = None, override: list[str] | None = None
) -> Any:
    """The records of benchmarks, or what a file makes known before there are any."""
    from tta_bench import frame

    if plan is None:
        stores = [_store(results, name) for name in names] if names else [_store(results, None)]
        return frame.load(*stores)
    from tta_bench.forecast import forecast

    return forecast(_grid(plan, override)[1])


def _store(results: Path, name: str | None) -> Any:
    from tta_bench.store import ResultStore, benchmarks

    found = benchmarks(results)
    if not found:
        raise UserError(f"{results}: no results here. Run `tta-bench run FILE` first, or --results DIR.")
    if name is not None and name not in found:
        raise UserError(f'{results}: no benchmark "{name}". There: {", ".join(found)}.')
    if name is None and len(found) > 1:
        print(
            f"{len(found)} benchmarks in {results}; showing {found[0]}, the last run.",
            file=sys.stderr,
        )
    return ResultStore(results, name or found[0])


def _print(found: Any, as_json: bool) -> None:
    """Print a description: its JSON for machines, its text for people."""
    print(json.dumps(found.data) if as_json else found.text)


def main() -> None:
    """Entry point: a user's mistake ends with a message and 2, never with a traceback."""
    try:
        app()
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)


if __name__ == "__main__":
    main()
