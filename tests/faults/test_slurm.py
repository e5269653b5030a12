"""The script for Slurm, with a `srun` that starts real Ray nodes on loopback addresses."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.conftest import Bench
from tests.helpers import slurm
from tools.loopback import is_free, processes, wait_for

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
# The script makes the port of the cluster from the number of the job.
JOB = next(number for number in itertools.count(os.getpid()) if is_free(20000 + number % 10000))


@pytest.fixture
def job(bench: Bench) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts the script in the folder of a benchmark, where .venv has the programs of Slurm."""
    programs = bench.folder / "programs"
    programs.mkdir()
    for name in slurm.PROGRAMS:
        call = f'PYTHONPATH="{ROOT}:$PYTHONPATH" exec {sys.executable} -m tests.helpers.slurm {name} "$@"'
        (programs / name).write_text(f"#!/bin/sh\n{call}\n")
        (programs / name).chmod(0o755)
    activate = bench.folder / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.write_text(f'export PATH="{programs}:{Path(sys.executable).parent}:$PATH"\n')
    facts = {
        "SLURM_JOB_ID": str(JOB),
        "SLURM_JOB_NUM_NODES": str(slurm.NODES),
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_CPUS_PER_TASK": "1",
    }

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["bash", ROOT / "examples" / "cluster" / "slurm.sbatch", bench.file.name],
            cwd=bench.folder,
            env=os.environ | facts,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        bench.started.append(process)
        return process

    yield start
    sessions = bench.folder / slurm.SESSIONS
    for session in map(int, sessions.read_text().split() if sessions.exists() else ()):
        for pid in processes(session):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_job_is_stopped_before_its_end_requeued_and_continued(
    job: Callable[[], subprocess.Popen[str]], bench: Bench, undisturbed: Callable[[Bench], str]
) -> None:
    gate = bench.folder / "gate"
    bench.write([{"use": "drift", "at": 5, "gate": str(gate), "pause": 1.0}, "source"])
    first = job()
    wait_for(lambda: bench.files("checkpoints/*.drift.*") or first.poll() is not None)
    assert first.poll() is None, first.communicate()
    seen = bench.records()
    first.send_signal(signal.SIGTERM)  # to the script only, as `--signal=B:TERM@120` says
    gate.touch()
    _, errors = first.communicate(timeout=120)
    assert first.returncode == 128 + signal.SIGTERM, errors
    assert "run the same command again" in errors
    assert (bench.folder / slurm.REQUEUED).read_text().split() == [str(JOB)]
    assert not list(bench.folder.glob("*.pid"))
    assert seen <= bench.records()

    second = job()
    _, errors = second.communicate(timeout=240)
    assert second.returncode == 0, errors
    assert seen <= bench.records()
    assert (bench.folder / slurm.REQUEUED).read_text().split() == [str(JOB)], "only once"
    assert bench.tables() == undisturbed(bench)
