"""CPU time, peak memory and duration of a command of tta-bench, to its end or until it has written files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

# A small process starts the command: a child of this one would count the memory of PyTorch here as its own.
LAUNCHER = """
import glob, os, resource, subprocess, sys, time
mark, most, *command = sys.argv[1:]

def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

begun = time.monotonic()
process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
while mark and process.poll() is None and not glob.glob(mark):
    time.sleep(0.02)
running = process.poll() is None
marked = (cpu_seconds(process.pid), time.monotonic()) if mark and running else (0.0, begun)
while int(most) and process.poll() is None and len(glob.glob(mark)) < int(most):
    time.sleep(0.2)
stopped = int(most) and process.poll() is None
if stopped:
    process.kill()
code = process.wait()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
seconds, end = used.ru_utime + used.ru_stime, time.monotonic()
print(seconds, used.ru_maxrss, end - begun, seconds - marked[0], end - marked[1])
sys.exit(0 if stopped else code)
"""


@dataclass(frozen=True)
class Used:
    """What a command has taken in all, and since a file had appeared."""

    cpu_seconds: float
    peak_mib: float
    seconds: float
    cpu_seconds_since: float
    seconds_since: float


def measured(
    *words: str, environment: Mapping[str, str] | None = None, mark: str = "", most: int = 0
) -> Used:
    """What a command takes; `mark` is a pattern of files that appear, and `most` of them end the command."""
    command = [sys.executable, "-m", "tta_bench.cli", *words]
    launcher = [sys.executable, "-c", LAUNCHER, mark, str(most), *command]
    outcome = subprocess.run(launcher, capture_output=True, text=True, env=environment)
    if outcome.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {outcome.returncode}: {outcome.stderr[-2000:]}")
    cpu_seconds, peak_kib, *rest = map(float, outcome.stdout.split())
    return Used(cpu_seconds, peak_kib / 2**10, *rest)
