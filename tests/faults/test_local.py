"""One process and what can happen to it: real signals, full and read-only disks, plugins gone wrong."""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import os
import pty
import resource
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import Bench
from tools.loopback import wait_for
from tta_bench.execution.time_limit import TimeLimit, within

Tables = Callable[[Bench], str]
SLOW = {"use": "drift", "pause": 0.1}
SHARING = ["source", "t3a", "shift"]


@pytest.mark.slow
def test_a_killed_driver_goes_on_where_it_was(bench: Bench, undisturbed: Tables) -> None:
    bench.write([SLOW, *SHARING, {"use": "drift", "name": "other", "pause": 0.11}])
    seen: set[str] = set()
    for wanted in (4, 8):
        process = bench.start()
        wait_for(lambda count=wanted: len(bench.records()) >= count)
        process.kill()
        process.wait()
        assert seen <= bench.records(), "no recorded domain is computed again"
        seen = bench.records()
    assert bench.here().returncode == 0
    assert seen <= bench.records()
    assert bench.tables() == undisturbed(bench)
    assert not bench.files("checkpoints/*"), "done cells need none"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGINT, "Ctrl-C again stops now"),
        (signal.SIGTERM, "SIGTERM: stopping after the batch at hand, at most 20 s from now"),
    ],
)
def test_a_signal_keeps_the_batch_at_hand(number: int, told: str, bench: Bench, undisturbed: Tables) -> None:
    bench.write([SLOW])
    process = bench.start()
    wait_for(lambda: len(bench.records()) >= 2)
    os.killpg(process.pid, number)  # a terminal signals the whole group
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert told in errors
    assert "run the same command again" in errors
    assert "Traceback" not in errors
    assert len(bench.files("checkpoints/*.checkpoint")) == 1
    assert bench.here().returncode == 0
    assert bench.tables() == undisturbed(bench)


@pytest.mark.slow
def test_a_closed_terminal_stops_the_run_like_a_signal(bench: Bench) -> None:
    """Its output can no longer be written anywhere."""
    bench.write([SLOW])
    own, other = pty.openpty()
    command = [sys.executable, "-m", "tta_bench.cli", "run", str(bench.file), "--results", str(bench.results)]
    become_terminal = partial(fcntl.ioctl, other, termios.TIOCSCTTY, 0)
    process = subprocess.Popen(
        command, stdin=other, stdout=other, stderr=other, start_new_session=True, preexec_fn=become_terminal
    )
    os.close(other)
    reader = threading.Thread(target=_drain, args=(own,), daemon=True)  # a full terminal would block the run
    reader.start()
    wait_for(lambda: len(bench.records()) >= 2)
    os.kill(process.pid, signal.SIGSTOP)  # so that the reader finds nothing new, and ends with its terminal
    os.close(own)
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(timeout=60) == 128 + signal.SIGHUP
    assert len(bench.files("checkpoints/*.checkpoint")) == 1


@pytest.mark.slow
def test_ctrl_c_twice_stops_now_and_the_folder_knows_its_holder(bench: Bench) -> None:
    bench.write([{"use": "drift", "fault": "hang", "at": 2}])
    process = bench.start()
    wait_for(lambda: bench.files("cells/*.json"))
    second = bench.here()
    assert second.returncode == 2
    assert f"in use by process {process.pid}" in second.stderr
    process.send_signal(signal.SIGINT)
    with pytest.raises(Exception, match="timed out"):
        process.wait(timeout=1)  # the batch at hand never ends
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_plugin_that_misbehaves_fails_alone_and_says_where(bench: Bench) -> None:
    faults = ("raise", "exit", "memory", "hang")
    methods: list[Any] = [{"use": "drift", "name": f, "fault": f, "at": 4} for f in faults]
    bench.write([*methods, "miscounts", "unsavable", "drift", "source"], run={"cell_minutes": 0.02})
    outcome = bench.here()
    assert outcome.returncode == 1
    assert "Some cells failed" in outcome.stderr
    rows = bench.status()
    assert {name for name, row in rows.items() if row["state"] == "done"} == {"drift", "source"}
    notes = {name: row["note"] for name, row in rows.items()}
    assert notes["raise"] == "RuntimeError: out of luck"
    assert notes["exit"] == "SystemExit: 3"
    assert "TimeLimit: the cell has used up its time" in notes["hang"]
    assert "allocate" in notes["memory"]
    assert "shape (1, 10), not (8, 10)" in notes["miscounts"]
    assert "neither a tensor nor plain data" in notes["unsavable"]
    assert "in _hang" in "".join(bench.records()), "the traceback shows where it hung"


def test_time_is_not_up_in_the_middle_of_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise whoever needs the module next finds half of it."""
    (tmp_path / "takes_long.py").write_text("import time\ntime.sleep(0.5)\ncomplete = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def hang() -> None:
        importlib.import_module("takes_long")
        time.sleep(60)

    with pytest.raises(TimeLimit), within(0.1):
        hang()
    assert sys.modules.pop("takes_long").complete


def test_a_failed_cell_goes_on_from_its_last_domain(bench: Bench, undisturbed: Tables) -> None:
    bench.write([{"use": "drift", "fault": "raise", "at": 8, "once": str(bench.folder / "mark")}])
    assert bench.here().returncode == 1
    good = {line for line in bench.records() if '"status":"ok"' in line}
    assert len(good) == 2
    assert bench.here().returncode == 1, "a failed cell is a result, until it is asked for again"
    assert bench.here("--overwrite", "failed").returncode == 0
    assert good < bench.records(), "two domains were not computed again"
    assert bench.tables() == undisturbed(bench)
    assert bench.here("--overwrite", "all").returncode == 0
    assert not good & bench.records(), "and now all were"


@pytest.mark.parametrize(
    ("what", "damage"), [("record", "edited"), ("record", "torn"), ("checkpoint", "edited")]
)
def test_damage_is_named_set_aside_and_mended(
    what: str, damage: str, bench: Bench, undisturbed: Tables
) -> None:
    bench.write([{"use": "drift", "fault": "raise", "at": 8, "once": str(bench.folder / "mark")}, "source"])
    assert bench.here().returncode == 1
    pattern = "records/*.source.*" if what == "record" else "checkpoints/*"
    (path,) = bench.files(pattern)
    content = path.read_bytes()
    flipped = content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]
    path.write_bytes(flipped if damage == "edited" else content[:-100])
    outcome = bench.here("--overwrite", "failed")
    assert f"{path.name}: a damaged {what} was set aside" in outcome.stderr
    assert len(bench.files("*/*.damaged-*")) == 1
    assert outcome.returncode == 0
    assert bench.tables() == undisturbed(bench)


def test_a_disk_of_its_own_gets_full_then_read_only_then_larger(bench: Bench, undisturbed: Tables) -> None:
    bench.write([{"use": "drift"}], stream={"rounds": 6})
    bench.results.mkdir()

    def mount(options: str) -> int:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(bench.results)]
        return subprocess.run(command, capture_output=True).returncode

    if mount("size=20k"):
        pytest.skip("only root may mount; the next test fills a disk without")
    try:
        full = bench.here()
        assert full.returncode == 2
        assert "cannot be written: No space left on device" in full.stderr
        assert "Earlier records are intact" in full.stderr
        seen = bench.records()
        assert seen
        mount("remount,ro")
        closed = bench.here()
        assert closed.returncode == 2
        assert "cannot be written: Read-only file system" in closed.stderr
        mount("remount,rw,size=10m")
        assert bench.here().returncode == 0
        assert len(seen - bench.records()) <= 1, "at most the one whose checkpoint did not fit"
        assert bench.tables() == undisturbed(bench)
    finally:
        subprocess.run(["umount", str(bench.results)], check=True)


@pytest.mark.slow
def test_a_file_that_may_not_grow_is_told_and_loses_nothing(bench: Bench, undisturbed: Tables) -> None:
    bench.write([{"use": "drift"}], stream={"rounds": 6})
    expected = undisturbed(bench)  # first: images are cached, and that is not what shall fail
    limit = 4000  # bytes a file: some domains fit, and a torn line

    outcome = bench.run(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert outcome.returncode == 2
    assert "cannot be written: File too large" in outcome.stderr
    assert "run the same command again" in outcome.stderr
    (path,) = bench.files("records/*.jsonl")
    whole = path.read_bytes().rpartition(b"\n")[0]
    outcome = bench.here()
    assert outcome.returncode == 0
    assert path.read_bytes().startswith(whole), "earlier records are intact"
    assert bench.tables() == expected


@pytest.mark.slow
def test_a_read_only_folder_is_told(bench: Bench) -> None:
    bench.write(["source"])
    bench.results.mkdir()
    bench.results.chmod(0o555)

    def obey_permissions() -> None:  # root's right to ignore them is given up for the process to come
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE

    outcome = bench.run(preexec_fn=obey_permissions)
    assert outcome.returncode == 2
    assert "cannot be written: Permission denied. Choose another --results folder." in outcome.stderr
    bench.results.chmod(0o755)
    assert not list(bench.results.iterdir())


def _drain(terminal: int) -> None:
    """Read what is printed on a terminal until it is closed."""
    with suppress(OSError):
        while os.read(terminal, 4096):
            pass
