"""Every scenario over Ray and after a kill: the same numbers with one and two workers, shared or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import SMALL
from tests.helpers.command import tta_bench
from tests.helpers.scenarios import COMBINED, STREAM, small
from tta_bench.plugins import registry
from tta_bench.storage.record import Record
from tta_bench.storage.store import ResultStore

METHODS = ["source", "t3a", "tent", {"use": "tent", "name": "TENT*", "reset": "domain"}]


def command(file: Path, results: Path, *options: str) -> list[str]:
    words = ["run", str(file), "--results", str(results), *options]
    return [sys.executable, "-m", "tta_bench.cli", *words]


def records(results: Path) -> list[Record]:
    """All records of a run."""
    store = ResultStore(results, "small")
    return [record for row in store.manifest()["cells"] for record in store.read(row["key"])]


def numbers(results: Path) -> dict[Any, Any]:
    """All records but their times, by cell, round, domain and visit."""
    where, found = ("key", "round", "corruption", "severity", "visit"), records(results)
    assert {record["status"] for record in found} == {"ok"}
    plain = [{k: v for k, v in r.items() if k not in ("seconds", "repeats", "environment")} for r in found]
    return {tuple(record.get(name) for name in where): record for record in plain}


VARIANTS = {
    "local": ("--engine", "local"),
    "unshared": ("--engine", "local", "-o", "run.share=false"),
    "one": ("--engine", "ray", "--workers", "1"),
    "two": ("--engine", "ray", "--workers", "2"),
}


def write(file: Path, methods: Sequence[Any], stream: dict[str, Any], **run: Any) -> None:
    """A benchmark of unquantised cells."""
    changes = {"quantizers": ["fp32"], "methods": list(methods), "stream": STREAM | stream}
    file.write_text(yaml.safe_dump(SMALL | changes | {"run": SMALL["run"] | run}))


@pytest.mark.slow
def test_workers_and_sharing_change_no_number(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    write(file, METHODS, {"scenario": [small(name) for name in registry.names("streams")]})
    for name, options in VARIANTS.items():
        subprocess.run(command(file, tmp_path / name, *options), check=True, timeout=600)
    expected = numbers(tmp_path / "local")
    for name in VARIANTS:
        assert numbers(tmp_path / name) == expected, name


@pytest.mark.slow
def test_workers_change_no_number_of_combined_settings(tmp_path: Path) -> None:
    """`test_scenario_runs.py` has more of these settings, with and without sharing, in one process."""
    file = tmp_path / "small.yaml"
    write(file, ["source", "t3a", "tent"], COMBINED["rounds"] | {"scenario": ["gradual", "correlated"]})
    assert tta_bench(*command(file, tmp_path / "local")[3:]).returncode == 0
    for workers in ("one", "two"):
        subprocess.run(command(file, tmp_path / workers, *VARIANTS[workers]), check=True, timeout=600)
        assert numbers(tmp_path / workers) == numbers(tmp_path / "local"), workers


KILLED = {name: {"scenario": small(name), "batch_size": 4} for name in registry.names("streams")}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*KILLED, "window"])
def test_a_killed_run_continues(name: str, tmp_path: Path) -> None:
    """Of every scenario, and of windows and resets."""
    file, killed = tmp_path / "small.yaml", tmp_path / "killed"
    write(file, ["tent"], (KILLED | COMBINED)[name], checkpoint_minutes=0)  # after every batch
    assert tta_bench(*command(file, tmp_path / "whole")[3:]).returncode == 0
    process = subprocess.Popen(command(file, killed), start_new_session=True)
    deadline = time.monotonic() + 300
    while not saved(killed) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    expected = numbers(tmp_path / "whole")
    assert saved(killed), "it was killed within its stream"
    assert len(records(killed)) < len(expected)
    subprocess.run(command(file, killed), check=True, timeout=600)
    assert numbers(killed) == expected


def saved(results: Path) -> list[Path]:
    """The checkpoints of a run."""
    return list((results / "small").rglob("*.checkpoint"))
