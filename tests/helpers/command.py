"""The command line, called in this process: what a user sees, without the seconds to start another."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tta_bench import cli


def tta_bench(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Exit code and both outputs of the command; what is not told to the user is raised."""
    output, errors, words = io.StringIO(), io.StringIO(), [*map(str, arguments)]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        patch.setattr(sys, "argv", ["tta-bench", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
    return subprocess.CompletedProcess(words, int(end.value.code or 0), output.getvalue(), errors.getvalue())
