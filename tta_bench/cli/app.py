"""The command-line program; the commands are added by other modules."""

from __future__ import annotations

from typing import Annotated

import typer

from tta_bench import __version__
from tta_bench.terminal import say

app = typer.Typer(
    help="Compare test-time adaptation methods on quantised image classifiers: one YAML in, tables out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"tta-bench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    pass
