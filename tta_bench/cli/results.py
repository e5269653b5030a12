"""Commands about a results folder: look at it, join it with others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli.app import app
from tta_bench.cli.inputs import frame_of, show, store_of, tell_damage, tell_earlier
from tta_bench.cli.options import AsJson, Device, Name, Names, Override, Planned, Results, Round
from tta_bench.terminal import say


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
        str, typer.Option("--format", help="text, latex (or tex), longtable, markdown, csv, json or html")
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
    earlier: Annotated[
        bool, typer.Option("--earlier", help="complete cells of runs before the last, instead of its own")
    ] = False,
) -> None:
    """Print the tables of a results folder, or what --plan FILE makes known of them beforehand."""
    from tta_bench.render import render
    from tta_bench.table import build

    loaded = frame_of(results, name, plan, override, earlier)
    options: list[tuple[str, int | None]] = [(layout, round)]
    if layout == "all":  # a run over rounds has no round of its own
        options = [("per-corruption", round), ("long-term", None), ("cost", round)]
    shared = {"allow_mixed": allow_mixed, "parameter": parameter, "reference": reference}
    built = [build(loaded, each, round=at, **shared) for each, at in options]
    texts = [render(each, format).rstrip("\n") for each in built]
    as_list = format == "json" and layout == "all"
    say("[" + ",\n".join(texts) + "]" if as_list else "\n\n".join(texts))


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
    found = comparing.compare(frame_of(results, name, plan, override), published, tolerance, table)
    show(comparing.describe(found, published, tolerance), as_json)


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
    draw(frame_of(results, name), figure, path, round)
    say(path)


@app.command()
def report(
    results: Results = Path("results"),
    name: Names = None,
    output: Annotated[Path, typer.Option("--output", help="file to write")] = Path("report.html"),
    reference: Annotated[str, typer.Option(help="which published numbers to show")] = "zoa-mm25",
    allow_mixed: Annotated[
        bool, typer.Option(help="show records of different protocols or versions together")
    ] = False,
) -> None:
    """Write one HTML page about a results folder: leaderboard, charts, provenance; it opens offline."""
    from tta_bench.report import gather, write

    stores = [store_of(results, each) for each in name] if name else [store_of(results, None)]
    page = gather(stores, reference, allow_mixed)
    tell_damage(stores)
    tell_earlier(stores)
    size = write(page, output)
    say(f"{output}: {size / 2**20:.1f} MiB")


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

        watching.watch(store_of(results, name), Console())
        return
    from tta_bench.status import describe

    store = store_of(results, name)
    found = describe(store)
    tell_damage([store])
    tell_earlier([store])
    show(found, as_json)


@app.command()
def verify(
    results: Results = Path("results"),
    name: Name = None,
    cells: Annotated[int, typer.Option("--cells", min=1, help="how many random finished cells")] = 5,
    seed: Annotated[int, typer.Option("--seed", help="of the random choice")] = 0,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Compute random domains of a results folder again, alone and unshared, and compare; 1 if any differs.

    A method that remembers earlier domains is computed from the start of its stream up to the chosen domain.
    """
    from tta_bench.progress import Progress
    from tta_bench.verify import verify

    found = verify(store_of(results, name), cells, seed, device or "auto", Progress(quiet=as_json))
    show(found, as_json)
    if found.data["differ"]:
        raise typer.Exit(1)


@app.command()
def merge(
    sources: Annotated[list[Path], typer.Argument(help="folders of results, e.g. of several machines")],
    into: Annotated[Path, typer.Option("--into", help="folder of results to join them in, new or not")],
    name: Annotated[str | None, typer.Option("--name", help="only this benchmark; default: all")] = None,
    as_json: AsJson = False,
) -> None:
    """Join results folders; a cell that has different numbers in two of them is refused by name."""
    from tta_bench import merge as merging

    show(merging.merge(sources, into, name), as_json)
