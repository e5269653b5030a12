"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path, typer.Argument(help="benchmark file, e.g. benchmark.yaml")]
Results = Annotated[Path, typer.Option("--results", help="folder of results")]
Override = Annotated[
    list[str] | None, typer.Option("-o", "--override", help="path=value, e.g. stream.rounds=2")
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        help="keep matching cells: method=tent, model=vit*, bits=W8A8, seed=1; one key twice means either",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="images a domain")]
Engine = Annotated[str | None, typer.Option("--engine", help="ray or local")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="worker processes")]
Device = Annotated[str | None, typer.Option("--device", help="auto (GPUs where there are some), cpu or cuda")]
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
