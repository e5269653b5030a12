"""Ray and what can happen to its processes: plugins that kill their worker, killed workers and drivers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.faults.conftest import Bench, listening
from tools.loopback import processes, wait_for
from tta_bench.execution.messages import RunPolicy
from tta_bench.execution.ray import driver, jobs

pytestmark = pytest.mark.slow
Tables = Callable[[Bench], str]
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_workers_have_the_priority_of_the_driver() -> None:
    """Ray's own default is a niceness of 15, with which they wait for everybody else on the machine."""
    with driver.RayRunner(1, RunPolicy()).connected() as ray:
        niceness = ray.get(ray.remote(lambda: os.nice(0)).remote())
    assert niceness == os.nice(0)


def test_a_plugin_takes_nothing_with_it_but_its_own_cell(
    bench: Bench, undisturbed: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some raise, exit, run out of memory or kill their process, some of them just once."""
    monkeypatch.setattr(jobs, "MAX_DEATHS", 2)  # a new worker takes seconds to start
    healed: list[Any] = [
        {"use": "drift", "name": f"{fault} once", "fault": fault, "at": 8, "once": str(bench.folder / fault)}
        for fault in ("killed", "vanish")
    ]
    doomed: list[Any] = [
        {"use": "drift", "name": fault, "fault": fault, "at": 4}
        for fault in ("raise", "exit", "memory", "killed")
    ]
    sharing = ["source", "t3a", {"use": "feature-drift", "name": "shared", "fault": "vanish", "at": 5}]
    bench.write([*healed, *doomed, *sharing], run={"engine": "ray", "workers": 2})
    outcome = bench.here()
    assert outcome.returncode == 1, outcome.stderr
    rows = bench.status()
    notes = "\n".join(f"{name}: {row['state']} {row['note']}" for name, row in rows.items())
    fine = {"killed once", "vanish once", "source", "t3a"}
    assert {name for name, row in rows.items() if row["state"] == "done"} == fine, notes
    assert {name for name, row in rows.items() if row["state"] != "failed"} == fine
    for name in ("killed", "shared"):
        assert "died 2 times without getting further" in rows[name]["note"], rows[name]
    assert "allocate" in rows["memory"]["note"]
    for name in ("raise", "killed"):
        assert rows[name]["records"] == "1/4", "it got as far as it could"
    bench.write([*healed, "source", "t3a"])
    assert bench.here("--engine", "local").stderr.count("nothing left to run"), "the others are as they were"
    assert bench.tables() == undisturbed(bench)


def test_a_plugin_that_hangs_is_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an alarm, or, where none reaches it, with its worker."""
    monkeypatch.setattr(driver, "GRACE_SECONDS", 6.0)
    doomed = [{"use": "drift", "name": fault, "fault": fault, "at": 4} for fault in ("hang", "stuck")]
    bench.write(doomed, run={"engine": "ray", "workers": 2, "cell_minutes": 0.2})
    settings = ray_settings()
    assert bench.here().returncode == 1
    assert ray_settings() == settings, "another cluster of this process would inherit them"
    rows = bench.status()
    assert "TimeLimit" in rows["hang"]["note"]
    assert "had not answered for" in rows["stuck"]["note"]
    assert {row["records"] for row in rows.values()} == {"1/4"}


def test_a_run_is_stopped_loses_workers_is_killed_and_ends_well(bench: Bench, undisturbed: Tables) -> None:
    # Every drift waits in its last domain, so that no run ends before it is disturbed.
    gate = bench.folder / "gate"
    slow = [
        {"use": "drift", "name": f"drift {i}", "at": 11, "gate": str(gate), "pause": 0.3 + i / 1000}
        for i in range(3)
    ]
    bench.write([*slow, "source", "t3a"], run={"engine": "ray", "workers": 2})

    first = bench.start()
    wait_for(lambda: bench.files("checkpoints/*.drift.*"))
    os.killpg(first.pid, signal.SIGINT)
    gate.touch()
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 130, errors
    assert "run the same command again" in errors
    assert "Traceback" not in errors
    assert bench.files("checkpoints/*.checkpoint")
    wait_for(lambda: not processes(first.pid), 20)
    seen = bench.records()
    gate.unlink()

    second = bench.start()

    def workers() -> list[int]:
        return [pid for pid, command in processes(second.pid).items() if command == "ray::Worker.run"]

    wait_for(lambda: len(workers()) == 2)
    assert listening(processes(second.pid)) <= LOOPBACK, "no port is open to others"
    (dashboard,) = [command for command in processes(second.pid).values() if "dashboard.py" in command]
    assert "--disable-frontend" in dashboard, "what is left of it counts usage, which is off too"
    os.kill(workers()[0], signal.SIGKILL)
    gate.touch()
    wait_for(lambda: len(bench.records()) > len(seen))
    second.kill()
    # Ray's two watchmen take a minute to notice; nothing that computes or stores may outlive the driver
    wait_for(lambda: all(command.endswith("Agent") for command in processes(second.pid).values()), 20)
    assert seen <= bench.records()

    assert bench.here("--engine", "local").returncode == 0
    assert seen <= bench.records()
    assert bench.tables() == undisturbed(bench)


def test_a_scheduler_that_signals_every_process_of_the_run_stops_it(
    bench: Bench, undisturbed: Tables
) -> None:
    gate = bench.folder / "gate"
    waiting = {"use": "drift", "at": 8, "gate": str(gate), "pause": 0.3}
    bench.write([waiting, "source"], run={"engine": "ray", "workers": 2})
    process = bench.start()
    wait_for(lambda: bench.files("checkpoints/*.drift.*"))
    for pid in processes(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            if pid != process.pid:
                os.kill(pid, signal.SIGHUP)
    gate.touch()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert "run the same command again" in errors, "a process that is ended by force does not say that"
    assert "Traceback" not in errors
    assert "***" not in errors, "a trace of C++"
    assert bench.files("checkpoints/*.checkpoint")
    wait_for(lambda: not processes(process.pid), 10)
    assert bench.here("--engine", "local").returncode == 0
    assert bench.tables() == undisturbed(bench)


def test_a_cluster_that_is_not_there_is_told_at_once(bench: Bench) -> None:
    bench.write(["source"])
    outcome = bench.here("--engine", "ray", "--ray-address", "127.0.0.1:9")
    assert outcome.returncode == 2
    assert "127.0.0.1:9: nobody answers" in outcome.stderr


def ray_settings() -> set[str]:
    """The environment variables of this process that Ray reads."""
    return {name for name in os.environ if name.startswith("RAY_")}
