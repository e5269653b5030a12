"""Commands on a results folder: show, verify and merge results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tta_bench.cli import completion
from tta_bench.cli.app import app
from tta_bench.cli.options import (
    AllowMixed,
    AsJson,
    Device,
    ForwardOnly,
    MaxForwards,
    MaxMemory,
    Name,
    Names,
    Override,
    Planned,
    Results,
    Round,
)
from tta_bench.cli.output import show, tell, tell_notes
from tta_bench.errors import UserError
from tta_bench.files import write_errors
from tta_bench.terminal import say, terminal_width

if TYPE_CHECKING:
    from tta_bench.commands.results import Tables


def _tables(
    results: Path,
    name: list[str] | None,
    plan: Path | None = None,
    override: list[str] | None = None,
    earlier: bool = False,
) -> Tables:
    """What is in a results folder, or with `plan` what is known before a run."""
    from tta_bench.commands import results as reading

    if plan is not None:
        return reading.forecast(plan, override or ())
    found = reading.results(results, name, earlier=earlier).read()
    tell_notes(found)
    return found


@app.command()
def table(
    results: Results = Path("results"),
    name: Names = None,
    layout: Annotated[
        str,
        typer.Option(
            help="per-corruption, long-term, cost, pairs, gap, ablation, sweep, bank, datasets, "
            "reset-vs-continual, scenarios, severities, domain-orders, or one of another package "
            "(`tta-bench list layouts`); all (the first three); tidy (one row for each cell, round and "
            "domain, as csv, json or parquet)",
            autocompletion=completion.layouts,
        ),
    ] = "all",
    format: Annotated[
        str,
        typer.Option(
            "--format",
            help="text, latex (or tex), longtable, markdown, csv, json or html",
            autocompletion=completion.formats,
        ),
    ] = "text",
    round: Round = None,
    parameter: Annotated[str | None, typer.Option(help="parameter of a sweep, if several vary")] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            help="add published rows in italics, e.g. of zoa-mm25 (`tta-bench list references`)",
            autocompletion=completion.references,
        ),
    ] = None,
    further: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="columns to add, separated by commas: ms_per_image, throughput, ece, top5, class_accuracy, "
            "worst_domain, forgetting; an empty text: none. Default: those of the layout",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="file to write; default: print")] = None,
    plan: Planned = None,
    override: Override = None,
    allow_mixed: AllowMixed = False,
    earlier: Annotated[
        bool, typer.Option("--earlier", help="show complete cells of earlier runs instead of the last run")
    ] = False,
    max_memory: MaxMemory = None,
    max_forwards: MaxForwards = None,
    forward_only: ForwardOnly = False,
) -> None:
    """Print the tables of a results folder, or with --plan FILE what is known of them before a run."""
    from tta_bench.tables.tidy_export import LAYOUT, export

    loaded = _tables(results, name, plan, override, earlier)
    if forward_only or (max_memory, max_forwards) != (None, None):
        limits = {"max_memory": max_memory, "max_forwards": max_forwards}
        loaded, note = loaded.within(**limits, forward_only=forward_only, round=round)
        tell(note)
    options: list[tuple[str, int | None]] = [(layout, round)]
    if layout == "all":  # a run over rounds has no round of its own
        options = [("per-corruption", round), ("long-term", None), ("cost", round)]
    if layout == LAYOUT:
        text = export(loaded.frame, "csv" if format == "text" else format, output)
        say(text or output)
        return
    shared: dict[str, Any] = {"allow_mixed": allow_mixed, "parameter": parameter, "reference": reference}
    if further is not None:
        shared["columns"] = [each.strip() for each in further.split(",") if each.strip()]
    built = [loaded.table(each, round=at, **shared) for each, at in options]
    width = terminal_width() if format in ("text", "txt") and output is None else None
    texts = [(each.render(format) if width is None else each.to_text(width)).rstrip("\n") for each in built]
    as_list = format == "json" and layout == "all"
    text = "[" + ",\n".join(texts) + "]" if as_list else "\n\n".join(texts)
    if output is not None:
        with write_errors(output, "Choose another --output."):
            output.write_text(text + "\n", encoding="utf-8")
    say(text if output is None else output)


@app.command()
def best(
    results: Results = Path("results"),
    name: Names = None,
    max_memory: MaxMemory = None,
    max_forwards: MaxForwards = None,
    forward_only: ForwardOnly = False,
    round: Round = None,
    as_json: AsJson = False,
) -> None:
    """Print which row is the most accurate within limits, as the budget section of the report does."""
    limits = {"max_memory": max_memory, "max_forwards": max_forwards}
    show(_tables(results, name).best(**limits, forward_only=forward_only, round=round), as_json)


@app.command()
def compare(
    results: Results = Path("results"),
    name: Names = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            help="published numbers to compare with (`tta-bench list references`); `embedded`: the default "
            "benchmark as shipped; default: zoa-mm25",
            autocompletion=completion.references,
        ),
    ] = None,
    table: Annotated[str, typer.Option(help="only this published table, e.g. tab:cost")] = "*",
    points: Annotated[float, typer.Option(min=0, help="tolerance for accuracies, in points")] = 0.5,
    percent: Annotated[float, typer.Option(min=0, help="tolerance for all other numbers, in percent")] = 3.0,
    plan: Planned = None,
    override: Override = None,
    as_json: AsJson = False,
) -> None:
    """Compare the results with published numbers and print a verdict for each."""
    loaded = _tables(results, name, plan, override)
    found = loaded.compare(reference or "zoa-mm25", table=table, points=points, percent=percent)
    show(found, as_json)


@app.command()
def figure(
    figure: Annotated[
        str,
        typer.Argument(
            help="motivation, online, rounds or pareto", autocompletion=completion.one_of(completion.FIGURES)
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", help="file to write, .pdf, .png or .svg; default FIGURE.pdf")
    ] = None,
    results: Results = Path("results"),
    name: Names = None,
    round: Annotated[
        int | None, typer.Option(help="round to draw; default: the last (online: the first)")
    ] = None,
) -> None:
    """Draw a figure from a results folder."""
    from tta_bench.figures import draw

    path = output or Path(f"{figure}.pdf")
    draw(_tables(results, name).frame, figure, path, round)
    say(path)


@app.command()
def report(
    results: Results = Path("results"),
    name: Names = None,
    output: Annotated[Path, typer.Option("--output", help="file to write")] = Path("report.html"),
    reference: Annotated[
        str, typer.Option(help="published numbers to show", autocompletion=completion.references)
    ] = "zoa-mm25",
    allow_mixed: AllowMixed = False,
) -> None:
    """Write an HTML page with leaderboard, charts and provenance of a results folder. It opens offline."""
    from tta_bench.commands import results as reading
    from tta_bench.report import gather, write

    found = reading.results(results, name)
    page = gather(found.stores, reference, allow_mixed)
    tell_notes(found)
    size = write(page, output)
    say(f"{output}: {size / 2**20:.1f} MiB")


@app.command()
def status(
    results: Results = Path("results"),
    name: Name = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="live view until all cells have ended, or Ctrl-C")
    ] = False,
    ray_address: Annotated[
        str | None,
        typer.Option(help="address of a cluster's dashboard: show the run that `submit` has started there"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the progress of the cells of a results folder, and why any failed."""
    from tta_bench.commands import results as reading

    if ray_address is not None:
        if watch:
            problem = "--watch: reads the results folder, which a submitted run has on the head node."
            raise UserError(f"{problem} Repeat the command without --watch, or log in there.")
        from tta_bench.cli.cluster import show_submitted

        show_submitted(ray_address, name, as_json)
        return
    found = reading.results(results, name)
    if watch:
        from rich.console import Console

        from tta_bench.storage import watch as watching

        watching.watch(found.stores[0], Console())
        return
    status = found.status()
    tell_notes(found)
    show(status, as_json)


@app.command()
def verify(
    results: Results = Path("results"),
    name: Name = None,
    cells: Annotated[int, typer.Option("--cells", min=1, help="number of random finished cells")] = 5,
    seed: Annotated[int, typer.Option("--seed", help="seed of the random choice")] = 0,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Compute random domains of a results folder again, without sharing, and compare the numbers.

    A method with state across domains is run from the start of its stream up to the chosen domain.
    The exit code is 1 if any number differs.
    """
    from tta_bench.checks.recomputation import verify
    from tta_bench.commands import results as reading
    from tta_bench.execution.progress import RunProgress

    store = reading.results(results, name).stores[0]
    found = verify(store, cells, seed, device or "auto", RunProgress(quiet=as_json))
    show(found, as_json, failed=bool(found.data["differ"]))


@app.command()
def merge(
    sources: Annotated[list[Path], typer.Argument(help="results folders, e.g. of several machines")],
    into: Annotated[Path, typer.Option("--into", help="results folder to merge them into, new or existing")],
    name: Annotated[str | None, typer.Option("--name", help="only this benchmark; default: all")] = None,
    as_json: AsJson = False,
) -> None:
    """Merge results folders. A cell with different numbers in two folders is an error that names the cell."""
    from tta_bench.storage import merge as merging

    show(merging.merge(sources, into, name), as_json)
