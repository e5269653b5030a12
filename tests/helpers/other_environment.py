"""A Python environment beside this one: all that is installed here, and whatever a test installs on top."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

SECONDS = 400  # as installing, checking and running one after the other may take on a busy machine


class OtherEnvironment:
    """A virtual environment that looks through to this one and has its own commands; no network is asked."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.bin, self.python = folder / "bin", folder / "bin" / "python"
        here = sysconfig.get_path("purelib")
        paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
        # `addsitedir`, unlike a plain path, also obeys the .pth files that editable installs leave there.
        Path(paths["purelib"], "behind.pth").write_text(f"import site; site.addsitedir({here!r})\n")
        for command, module in {"tta-bench": "tta_bench.cli", "pip": "pip", "pytest": "pytest"}.items():
            script = self.bin / command
            script.write_text(f'#!/bin/sh\nexec "{self.python}" -m {module} "$@"\n')
            script.chmod(0o755)

    def shell(self, script: str, cwd: Path) -> str:
        """What a shell script prints; it ends at the first command that fails."""
        settings = {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads the value as that of `build isolation`
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "OMP_NUM_THREADS": "1",
        }
        outcome = subprocess.run(
            ["sh", "-euc", script],
            cwd=cwd,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | settings,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        return outcome.stdout


def installed_here() -> set[str]:
    """The plugin packages of this environment, which no test may add to."""
    outcome = subprocess.run(
        [sys.executable, "-m", "pip", "list"], capture_output=True, text=True, timeout=60
    )
    return {line.split()[0] for line in outcome.stdout.splitlines() if line.startswith("tta-bench-")}
