"""The command line: parsing only. Heavy imports happen inside the commands that need them."""

from __future__ import annotations

import sys

from tta_bench.errors import UserError
from tta_bench.interrupt import EXIT_CODE, Stopped
from tta_bench.terminal import say

try:
    from tta_bench.cli import grids, plugins, results  # each adds its commands to the app
    from tta_bench.cli.app import app
except KeyboardInterrupt:  # Ctrl-C while the program itself is being imported
    sys.exit(EXIT_CODE)

__all__ = ["app", "grids", "main", "plugins", "results"]


def main() -> None:
    """Entry point: a user's mistake ends with a message and 2, Ctrl-C with 130, never with a traceback."""
    with Stopped() as stopped:
        try:
            app()
        except BaseException as error:
            done = isinstance(error, SystemExit) and not error.code
            if stopped and not done:  # `status --watch` ends well with Ctrl-C
                sys.exit(EXIT_CODE)
            if isinstance(error, UserError):
                say(error, error=True)
                sys.exit(2)
            if isinstance(error, BrokenPipeError):
                sys.stderr.close()
                sys.exit(141)
            raise
