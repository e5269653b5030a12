"""Commands on plugins, and on the machine they run on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli import completion, options
from tta_bench.cli.app import app
from tta_bench.cli.options import AsJson, BitsOfBoth, Results, SetData
from tta_bench.cli.output import show
from tta_bench.terminal import say


@app.command()
def new(
    kind: Annotated[
        str,
        typer.Argument(
            help="method, quantizer, model, timm-model, data, corruption or scenario",
            autocompletion=completion.kinds,
        ),
    ],
    name: Annotated[str, typer.Argument(help="its name in benchmark files: letters, digits, dashes")],
    into: Annotated[Path, typer.Option("--into", help="parent folder of the new package")] = Path(),
) -> None:
    """Create a package for a new plugin: working code to start from, a test and a benchmark file."""
    from tta_bench import scaffold

    folder = scaffold.create(kind, name, into)
    say(scaffold.next_steps(kind, name, folder))


@app.command("list")
def list_plugins(
    group: Annotated[
        str | None,
        typer.Argument(
            help="methods, quantizers, models, data, corruptions, streams, layouts or references",
            autocompletion=completion.groups,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            help="a plugin of the group: describe every parameter of it", autocompletion=completion.of_group
        ),
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="import the plugins and show their properties and parameters")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the installed plugins, or describe one of them with its parameters."""
    from tta_bench.cli.listing import describe
    from tta_bench.cli.plugin_page import describe_plugin

    show(describe(group, long) if group is None or name is None else describe_plugin(group, name), as_json)


@app.command()
def recipes(
    name: Annotated[
        str | None,
        typer.Argument(help="print this recipe; default: list all", autocompletion=completion.recipes),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the benchmark files that ship with tta-bench, or print one of them."""
    from tta_bench.commands import recipes as shipped

    if name is None:
        show(shipped.describe(), as_json)
    else:
        say(shipped.recipe(name).rstrip("\n"))


@app.command()
def schema() -> None:
    """Print the JSON Schema of benchmark files, with all installed plugins and their parameters.

    Editors check and complete a file whose first line is `# yaml-language-server: $schema=PATH`.
    """
    from tta_bench.config.json_schema import json_schema

    say(json.dumps(json_schema(), indent=1))


@app.command()
def check(
    plugin: Annotated[
        str,
        typer.Argument(help="a plugin's name, or group/name", autocompletion=completion.any_plugin),
    ],
    as_json: AsJson = False,
) -> None:
    """Run the contract suite on an installed plugin, built-in or third-party."""
    from tta_bench.cli.listing import locate
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


models = typer.Typer(help="Commands on models with their weights.", no_args_is_help=True)
app.add_typer(models, name="models")


@models.command("check")
def check_model(
    model: Annotated[str, typer.Argument(help="a model's name", autocompletion=completion.plugins("models"))],
    data: Annotated[
        str,
        typer.Option(help="data with clean, labelled images", autocompletion=completion.plugins("data")),
    ] = "cifar10-mini",
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="model parameter, e.g. weights=PATH or stride=v1",
            autocompletion=completion.parameters("models", "model"),
        ),
    ] = None,
    set_data: SetData = None,
    limit: Annotated[int, typer.Option(min=1, help="number of images")] = 1000,
    batch_size: Annotated[int, typer.Option(min=1, help="images per batch")] = 64,
    expect: Annotated[
        float | None, typer.Option(min=0, max=100, help="published accuracy of the weights, in %")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a model's accuracy on clean images, to check that its weights are used as they were trained.

    The exit code is 1 if the accuracy is below --expect by more than chance explains.
    """
    from tta_bench.checks.models import ModelCheckRequest, describe

    params = {"models": set or [], "data": set_data or []}
    found = describe(ModelCheckRequest(model, data, params, limit, batch_size, expect))
    show(found, as_json, failed=found.data["as_expected"] is False)


@app.command()
def memory(
    model: options.ModelName,
    method: Annotated[
        str, typer.Option(help="a method's name", autocompletion=completion.plugins("methods"))
    ] = "source",
    quantizer: options.QuantizerName = "fp32",
    bits: BitsOfBoth = None,
    batch_size: Annotated[int, typer.Option(min=1, help="images per batch")] = 64,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="method parameter, e.g. filter_k=20",
            autocompletion=completion.parameters("methods", "method"),
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the memory of one adaptation step. No weights, data or GPU are needed."""
    from tta_bench.commands.plan import memory
    from tta_bench.config.parameters import settings_of

    params = settings_of(set or [])
    found = memory(model, method, quantizer=quantizer, bits=bits, batch_size=batch_size, params=params)
    show(found, as_json)


@app.command()
def quantize(
    model: options.ModelName,
    quantizer: options.QuantizerName,
    bits: BitsOfBoth = None,
    data: options.CalibrationData = "cifar10-mini",
    set: options.SetQuantizer = None,
    set_model: options.SetModel = None,
    set_data: SetData = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="integer engine: also print its agreement with the simulation and its integer products",
            autocompletion=completion.field_of("quantizers.uniform", "engine"),
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, help="as run.threads in a benchmark file; it may change the last digits")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Calibrate a quantizer and print scale, clip rate and signal-to-noise ratio of every layer.

    Calibrations are cached: those of earlier runs are reused here, and later runs reuse this one.
    """
    from tta_bench.checks.quantization import QuantizationRequest, describe

    chosen = [*(set or []), *([f"engine={engine}"] if engine else [])]
    params = {"quantizers": chosen, "models": set_model or [], "data": set_data or []}
    show(describe(QuantizationRequest(model, quantizer, bits, data, params, threads)), as_json)


@app.command()
def export(
    model: options.ModelName,
    output: Annotated[Path, typer.Option("--output", help="folder to write to")],
    quantizer: options.QuantizerName = "uniform",
    bits: BitsOfBoth = None,
    data: options.CalibrationData = "cifar10-mini",
    set: options.SetQuantizer = None,
    set_model: options.SetModel = None,
    set_data: SetData = None,
    as_json: AsJson = False,
) -> None:
    """Write a quantised network as ONNX files, to run and adapt it without this package.

    The norm layers' parameters are inputs of the graphs; network.json describes all inputs and outputs.
    """
    from tta_bench.checks.export import describe
    from tta_bench.checks.quantization import QuantizationRequest

    params = {"quantizers": set or [], "models": set_model or [], "data": set_data or []}
    request = QuantizationRequest(model, quantizer, bits, data, params, threads=1)
    show(describe(request, output), as_json)


@app.command()
def doctor(
    results: Results = Path("results"),
    ray: Annotated[bool, typer.Option("--ray", help="also start Ray and run a task on a worker")] = False,
    as_json: AsJson = False,
) -> None:
    """Check versions, devices, data, disk space and tools of this machine, and print how to fix problems."""
    from tta_bench.checks import doctor as examining

    found = examining.describe(examining.examine(results, ray))
    show(found, as_json, failed=not found.data["usable"])
