"""The command line: parsing only. Heavy imports happen inside the commands that need them."""

from __future__ import annotations

import sys

try:
    from tta_bench.cli import cluster, grids, plugins, results  # each adds its commands to the app
    from tta_bench.cli.app import app
    from tta_bench.errors import UserError
    from tta_bench.execution.interrupt import Stop, Stopped
    from tta_bench.terminal import say
except KeyboardInterrupt:  # Ctrl-C while the program itself is being imported
    sys.exit(130)

__all__ = ["app", "cluster", "grids", "main", "plugins", "results"]


def main() -> None:
    """Entry point: a user's error prints a message and exits with 2, a signal with 128 + n; no traceback."""
    with Stop():
        try:
            app()
        except Stopped as stopped:
            sys.exit(stopped.exit_code)
        except UserError as error:
            say(error, error=True)
            sys.exit(error.exit_code)
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(141)
