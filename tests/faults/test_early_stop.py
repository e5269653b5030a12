"""Ctrl-C before a run has begun, and runs in a thread that is not the main one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tests.faults.conftest import Bench


@pytest.mark.parametrize("command", ["run", "table", "list --long"])
@pytest.mark.parametrize("seconds", [0.2, 0.5, 0.9])
def test_ctrl_c_during_imports_ends_without_a_traceback(command: str, seconds: float, bench: Bench) -> None:
    bench.write(["source"])
    words = ["run", str(bench.file)] if command == "run" else command.split()
    process = subprocess.Popen(
        [sys.executable, "-m", "tta_bench.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )
    bench.started.append(process)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    # Before Python has begun, or after its end, the signal itself ends the process; shells call that 130.
    assert process.returncode in (130, -signal.SIGINT) or command == "table"


@pytest.mark.parametrize("where", ["tta_bench.cli.grids", "tta_bench.grid", "torch"])
def test_ctrl_c_inside_a_chosen_import(where: str, bench: Bench, tmp_path: Path) -> None:
    """An import that presses Ctrl-C itself, and then turns the exception into another, as extensions do."""
    bench.write(["source"])
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent(f"""
            import os, signal, sys

            class Pressing:
                def find_spec(self, name, path=None, target=None):
                    if name == {where!r}:
                        sys.meta_path.remove(self)
                        try:
                            os.kill(os.getpid(), signal.SIGINT)
                            for _ in range(1000): pass
                        except KeyboardInterrupt:
                            if {where != "tta_bench.cli.grids"}:
                                raise ImportError("initialization failed") from None
                            raise

            sys.meta_path.insert(0, Pressing())
        """)
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    outcome = bench.run(env=os.environ | {"PYTHONPATH": path})
    assert outcome.returncode == 130, outcome.stderr


def test_a_run_in_a_thread_runs(bench: Bench) -> None:
    bench.write(["source"], stream={"rounds": 1, "limit": 4})
    outcomes: list[subprocess.CompletedProcess[str]] = []
    thread = threading.Thread(target=lambda: outcomes.append(bench.here()))
    thread.start()
    thread.join()
    assert [outcome.returncode for outcome in outcomes] == [0], outcomes


def test_a_time_limit_in_a_thread_is_refused_before_anything_runs(bench: Bench) -> None:
    bench.write(["source"], stream={"rounds": 1, "limit": 4}, run={"cell_minutes": 5})
    outcomes: list[subprocess.CompletedProcess[str]] = []
    thread = threading.Thread(target=lambda: outcomes.append(bench.here()))
    thread.start()
    thread.join()
    assert [outcome.returncode for outcome in outcomes] == [2]
    assert "run.cell_minutes: a time limit needs the main thread of its process" in outcomes[0].stderr
    assert not bench.records()
