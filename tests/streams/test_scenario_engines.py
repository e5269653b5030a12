"""Every scenario over Ray: the same tables with one and two workers, and after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import SMALL
from tests.helpers.scenarios import STREAM, small
from tta_bench.plugins import registry
from tta_bench.storage.store import ResultStore

METHODS = ["source", "t3a", "tent", {"use": "tent", "name": "TENT*", "reset": "domain"}]


def command(file: Path, results: Path, *options: str) -> list[str]:
    words = ["run", str(file), "--results", str(results), *options]
    return [sys.executable, "-m", "tta_bench.cli", *words]


def numbers(results: Path) -> dict[Any, Any]:
    """All records but their times, by cell, round, domain and visit."""
    store = ResultStore(results, "small")
    where = ("key", "round", "corruption", "severity", "visit")
    records = [record for row in store.manifest()["cells"] for record in store.read(row["key"])]
    assert {record["status"] for record in records} == {"ok"}
    plain = [{k: v for k, v in r.items() if k not in ("seconds", "repeats", "environment")} for r in records]
    return {tuple(record.get(name) for name in where): record for record in plain}


@pytest.mark.slow
def test_workers_sharing_and_kills_change_no_number(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    stream = STREAM | {"scenario": [small(name) for name in registry.names("streams")]}
    file.write_text(yaml.safe_dump(SMALL | {"quantizers": ["fp32"], "methods": METHODS, "stream": stream}))
    variants = {
        "local": ("--engine", "local"),
        "unshared": ("--engine", "local", "-o", "run.share=false"),
        "one": ("--engine", "ray", "--workers", "1"),
        "two": ("--engine", "ray", "--workers", "2"),
    }
    for name, options in variants.items():
        subprocess.run(command(file, tmp_path / name, *options), check=True, timeout=600)
    killed = tmp_path / "killed"
    for _ in range(3):
        process = subprocess.Popen(command(file, killed, "--engine", "local"), start_new_session=True)
        written = len(list(killed.rglob("*.jsonl")))
        deadline = time.monotonic() + 300
        while len(list(killed.rglob("*.jsonl"))) < written + 3 and time.monotonic() < deadline:
            if process.poll() is not None:
                break
            time.sleep(0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(command(file, killed, "--engine", "local"), check=True, timeout=600)
    expected = numbers(tmp_path / "local")
    for name in (*variants, "killed"):
        assert numbers(tmp_path / name) == expected, name
