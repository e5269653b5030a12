"""The command line: parsing only. Heavy imports happen inside the commands that need them."""

from __future__ import annotations

import sys

from tta_bench.cli import grids, plugins, results  # each adds its commands to the app
from tta_bench.cli.app import app
from tta_bench.errors import UserError

__all__ = ["app", "grids", "main", "plugins", "results"]


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
