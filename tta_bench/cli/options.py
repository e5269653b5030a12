"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli import completion

File = Annotated[Path, typer.Argument(help="benchmark file, e.g. benchmark.yaml")]
Results = Annotated[Path, typer.Option("--results", help="results folder")]
Override = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--override",
        help="set a value of the benchmark file: path=value, e.g. stream.rounds=2",
        autocompletion=completion.overrides,
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        help="only matching cells: method=tent, model=vit*, bits=W8A8, seed=1; repeat to combine: "
        "different keys must all match, of the same key any value may",
        autocompletion=completion.filters,
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="images per domain")]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="ray (worker processes) or local (this process)",
        autocompletion=completion.field_of("RunSection", "engine"),
    ),
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="number of worker processes")]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="auto (GPUs if there are any), cpu or cuda",
        autocompletion=completion.field_of("RunSection", "device"),
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        help="benchmark in the results folder; default: the last run",
        autocompletion=completion.benchmarks,
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        help="benchmark in the results folder; default: the last run; repeat to combine",
        autocompletion=completion.benchmarks,
    ),
]
Micro = Annotated[
    bool,
    typer.Option("--micro", help="smoke run: small built-in images and networks replace those of the file"),
]
RayAddress = Annotated[
    str | None, typer.Option(help="address of a running Ray cluster; default: start Ray on this machine")
]
Presets = Annotated[
    Path | None,
    typer.Option("--presets", help="presets file from `tta-bench tune`; values in FILE take precedence"),
]
Planned = Annotated[
    Path | None, typer.Option("--plan", help="benchmark file: show what is known before any run")
]
AllowMixed = Annotated[
    bool, typer.Option(help="put records of different protocols or versions into one table")
]
BitsOfBoth = Annotated[str | None, typer.Option(help="bit-widths of weights and activations, e.g. W8A8")]
SetData = Annotated[
    list[str] | None,
    typer.Option(
        "--set-data",
        help="data parameter, e.g. root=PATH",
        autocompletion=completion.parameters("data", "data"),
    ),
]
SetModel = Annotated[
    list[str] | None,
    typer.Option(
        "--set-model",
        help="model parameter, e.g. weights=PATH",
        autocompletion=completion.parameters("models", "model"),
    ),
]
SetQuantizer = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="quantizer parameter, e.g. scale=minmax",
        autocompletion=completion.parameters("quantizers", "quantizer"),
    ),
]
CalibrationData = Annotated[
    str,
    typer.Option(
        help="data whose clean images are used for calibration", autocompletion=completion.plugins("data")
    ),
]
QuantizerName = Annotated[
    str, typer.Option(help="a quantizer's name", autocompletion=completion.plugins("quantizers"))
]
ModelName = Annotated[str, typer.Option(help="a model's name", autocompletion=completion.plugins("models"))]
Overwrite = Annotated[
    str,
    typer.Option(
        help="which cells to compute again: missing (none), failed or all",
        autocompletion=completion.one_of(completion.OVERWRITE),
    ),
]
Round = Annotated[int | None, typer.Option(help="round to show; default: the last")]
MaxMemory = Annotated[
    float | None, typer.Option("--max-memory", min=0, help="only rows that need at most so many MiB")
]
MaxForwards = Annotated[
    float | None,
    typer.Option("--max-forwards", min=0, help="only rows with at most so many forward passes per image"),
]
ForwardOnly = Annotated[bool, typer.Option("--forward-only", help="only methods without backpropagation")]
