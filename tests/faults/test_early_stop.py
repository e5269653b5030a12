"""Ctrl-C before a run has begun, and runs in a thread that is not the main one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import Bench
from tools.loopback import wait_for
from tta_bench import cli
from tta_bench.execution import interrupt

PRESSING = """
    import os, signal, sys

    class Pressing:
        def find_spec(self, name, path=None, target=None):
            if name == {module!r}:
                sys.meta_path.remove(self)
                try:
                    os.kill(os.getpid(), signal.SIGINT)
                    for _ in range(1000): pass
                except KeyboardInterrupt:
                    if {swallowed}:
                        raise ImportError("initialization failed") from None
                    raise

    sys.meta_path.insert(0, Pressing())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "swallowed"),
    [("typer", False), ("tta_bench.cli.grids", False), ("tta_bench.config.benchmark", True), ("torch", True)],
)
def test_ctrl_c_during_imports_ends_without_a_traceback(
    module: str, swallowed: bool, bench: Bench, tmp_path: Path
) -> None:
    """Extension modules turn the exception into another one."""
    bench.write(["source"])
    script = textwrap.dedent(PRESSING.format(module=module, swallowed=swallowed))
    (tmp_path / "sitecustomize.py").write_text(script)
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    outcome = bench.run(env=os.environ | {"PYTHONPATH": path})
    assert outcome.returncode == 130, outcome.stderr


def test_ctrl_c_between_imports_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    monkeypatch.setattr(cli, "app", pressed)
    before = signal.getsignal(signal.SIGINT)  # ignored, if the tests were started in the background
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    assert signal.getsignal(signal.SIGINT) is before


def test_a_batch_that_does_not_end_is_cut_short_after_sigterm(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupt, "STOP_SECONDS", 0.3)
    bench.write([{"use": "drift", "fault": "hang", "at": 5}])
    timer = threading.Timer(0.1, lambda: _once(lambda: len(bench.records()) > 0, signal.SIGTERM))
    timer.start()
    outcome = bench.here()
    timer.join()
    assert outcome.returncode == 128 + signal.SIGTERM, outcome.stderr
    assert "run the same command again" in outcome.stderr
    assert len(bench.files("checkpoints/*.checkpoint")) == 1, "that of the last domain's end"


def _once(ready: Callable[[], bool], number: int) -> None:
    """Send this process a signal when a condition is true."""
    wait_for(ready)
    time.sleep(0.3)  # so that the batch hangs
    os.kill(os.getpid(), number)


def test_nohup_stays_in_force() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupt.Interrupt(print) as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_process_that_cannot_handle_the_signal_ends_all_the_same() -> None:
    """A long computation in C keeps Python from running its handlers."""
    script = """
        import os, signal, threading, time
        from tta_bench.execution import interrupt

        interrupt.STOP_SECONDS, interrupt.EXIT_SECONDS = 0.1, 0.2
        with interrupt.Interrupt(print):
            os.kill(os.getpid(), signal.SIGTERM)
            waiting = threading.Thread(target=threading.Event().wait, daemon=True)
            waiting.start()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    assert subprocess.run(command, timeout=30).returncode == 128 + signal.SIGTERM


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
