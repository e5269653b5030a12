"""Runs whose cache cannot be written, or lies: same numbers, no failed cell."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tta_bench import config, grid
from tta_bench.execution.executor import Executor
from tta_bench.planning.sharing import resolve
from tta_bench.storage.store import ResultStore
from tta_bench.tables import frame

CELLS = {
    "quantizers": ["fp32", {"use": "uniform", "bits": "W8A8"}],
    "methods": ["source", "bn-adapt"],
    "stream": {"corruptions": ["gaussian_noise", "fog"], "rounds": 2, "batch_size": 8, "limit": 16},
}


def records(path: Path) -> list[dict[str, Any]]:
    """What every cell of a benchmark finds, without times."""
    found = []
    for cell in grid.expand(config.load(path)):
        for delivery in Executor().run([resolve(cell)]):
            found += [{k: v for k, v in record.items() if k != "seconds"} for record in delivery.records]
    return found


@pytest.mark.usefixtures("no_bytes")
def test_cells_do_not_depend_on_the_cache(
    tmp_path: Path, write_yaml: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_yaml(**CELLS)
    expected = records(path)
    assert {record["status"] for record in expected} == {"ok"}
    (tmp_path / "file").touch()
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "file" / "cache"))
    assert records(path) == expected


@pytest.mark.usefixtures("no_bytes")
def test_damage_anywhere_in_the_cache_changes_no_number(
    tmp_path: Path, write_yaml: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, home = write_yaml(**CELLS), tmp_path / "cache"
    monkeypatch.setenv("TTA_BENCH_CACHE", str(home))
    expected = records(path)
    files = [file for file in home.rglob("*") if file.is_file() and file.parent.name != "native"]
    assert {file.parent.name for file in files} >= {"corrupted", "calibrations"}
    for file in files:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 16
        file.write_bytes(content)
    assert records(path) == expected


def run(path: Path, results: Path, cache: Path, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """`tta-bench run` in a process of its own, with a limit on the size of files it may write."""

    def full() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "tta_bench.cli", "run", str(path), "--engine", "local"]
    return subprocess.run(
        [*command, "--results", str(results)],
        env=os.environ | {"TTA_BENCH_CACHE": str(cache), "TTA_BENCH_COMPILE": "0"},
        capture_output=True,
        text=True,
        preexec_fn=full,
    )


@pytest.mark.slow
def test_the_command_says_once_that_nothing_is_cached(
    tmp_path: Path, write_yaml: Callable[..., Path]
) -> None:
    (tmp_path / "file").touch()
    path = write_yaml(**CELLS | {"quantizers": ["fp32"], "methods": ["source"]})
    outcome = run(path, tmp_path / "results", tmp_path / "file" / "cache")
    assert outcome.returncode == 0, outcome.stderr
    said = " ".join((outcome.stdout + outcome.stderr).split())
    assert said.count("the cache cannot be written") == 1
    assert set(frame.load(ResultStore(tmp_path / "results", "small")).status) == {"ok"}


@pytest.mark.slow
def test_a_disk_that_is_full_for_the_cache_fails_no_cell(
    tmp_path: Path, write_yaml: Callable[..., Path]
) -> None:
    """Files of more than 20 kB cannot be written: corrupted sets and calibrations, but not results."""
    path = write_yaml(**CELLS | {"methods": ["source"]})
    outcome = run(path, tmp_path / "results", tmp_path / "cache", 20_000)
    assert outcome.returncode == 0, outcome.stderr
    assert set(frame.load(ResultStore(tmp_path / "results", "small")).status) == {"ok"}
    assert not list((tmp_path / "cache" / "corrupted").glob("*.npy"))
