"""Commands about plugins, and about the machine they run on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli.app import app
from tta_bench.cli.inputs import show
from tta_bench.cli.options import AsJson, Results
from tta_bench.terminal import say


@app.command()
def new(
    kind: Annotated[str, typer.Argument(help="method, quantizer, model, timm-model, data or corruption")],
    name: Annotated[str, typer.Argument(help="what benchmark files will call it: letters, digits, dashes")],
    into: Annotated[Path, typer.Option("--into", help="where to put the package's folder")] = Path(),
) -> None:
    """Write the package of a new plugin: working code to start from, its test, a benchmark file."""
    from tta_bench import scaffold

    folder = scaffold.create(kind, name, into)
    say(scaffold.next_steps(kind, name, folder))


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

    show(describe(group, long), as_json)


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
            say(f"{mark}  {outcome.subject}: {outcome.check}" + (f" — {note}" if note else ""))
    if as_json:
        say(json.dumps(found))
    if broken:
        raise typer.Exit(1)


models = typer.Typer(help="Look at models with their weights.", no_args_is_help=True)
app.add_typer(models, name="models")


@models.command("check")
def check_model(
    model: Annotated[str, typer.Argument(help="a model's name")],
    data: Annotated[str, typer.Option(help="data with clean, labelled images")] = "cifar10-mini",
    set: Annotated[
        list[str] | None, typer.Option("--set", help="model parameter, e.g. weights=PATH or stride=v1")
    ] = None,
    set_data: Annotated[
        list[str] | None, typer.Option("--set-data", help="data parameter, e.g. root=PATH")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="images to look at")] = 1000,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    expect: Annotated[
        float | None, typer.Option(min=0, max=100, help="accuracy in % that the weights are known for")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a model's accuracy on clean images, beside the expected one: are its weights used as trained?

    Ends with 1 if it is lower than expected by more than chance explains.
    """
    from tta_bench.model_check import Request, describe

    params = {"models": set or [], "data": set_data or []}
    found = describe(Request(model, data, params, limit, batch_size, expect))
    show(found, as_json)
    if found.data["as_expected"] is False:
        raise typer.Exit(1)


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

    show(describe_memory(model, quantizer, bits, method, set or [], batch_size), as_json)


@app.command()
def quantize(
    model: Annotated[str, typer.Option(help="a model's name")],
    quantizer: Annotated[str, typer.Option(help="a quantizer's name")],
    bits: Annotated[str | None, typer.Option(help="e.g. W8A8")] = None,
    data: Annotated[str, typer.Option(help="data whose clean images calibrate")] = "cifar10-mini",
    set: Annotated[
        list[str] | None, typer.Option("--set", help="quantizer parameter, e.g. scale=minmax")
    ] = None,
    set_model: Annotated[
        list[str] | None, typer.Option("--set-model", help="model parameter, e.g. weights=PATH")
    ] = None,
    set_data: Annotated[
        list[str] | None, typer.Option("--set-data", help="data parameter, e.g. root=PATH")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="as run.threads: sums are rounded by it")] = 1,
    as_json: AsJson = False,
) -> None:
    """Calibrate, and print scales, clip rates and signal-to-noise of every site: which layer hurts.

    A calibration that a run has made is read from the cache, and one that is made here serves later runs.
    """
    from tta_bench.quantizing import Request, describe

    params = {"quantizers": set or [], "models": set_model or [], "data": set_data or []}
    show(describe(Request(model, quantizer, bits, data, params, threads)), as_json)


@app.command()
def doctor(
    results: Results = Path("results"),
    ray: Annotated[bool, typer.Option("--ray", help="start Ray, too, and let a worker answer")] = False,
    as_json: AsJson = False,
) -> None:
    """Check versions, devices, data, disk and tools of this machine, and say what to do about each."""
    from tta_bench import doctor as examining

    found = examining.describe(examining.examine(results, ray))
    show(found, as_json)
    if not found.data["usable"]:
        raise typer.Exit(1)
