"""Byte counts on disk: verified, and known by the code that they depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tta_bench.config import load
from tta_bench.footprint import cache
from tta_bench.footprint.account import MemoryReport
from tta_bench.grid import Cell, expand

PARTS = {"parameters": 600_000, "inputs": 200_000}
REPORT = MemoryReport(PARTS, {"network": 200_000}, None, PARTS, bounded=True)


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the methods whose bytes were counted, with an empty cache."""
    counts: list[str] = []

    def account(*plugins: object) -> MemoryReport:
        counts.append(type(plugins[2]).__name__)
        return REPORT

    monkeypatch.setattr(cache, "account", account)
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "cache"))
    return counts


@pytest.fixture
def cell(write_yaml: Callable[..., Path]) -> Cell:
    return expand(load(write_yaml(quantizers=["fp32"], methods=["source"])))[0]


def test_bytes_are_counted_once(cell: Cell, counted: list[str]) -> None:
    assert cache.of(cell) == cache.of(replace(cell, seed=7)) == REPORT
    assert len(counted) == 1


def test_a_flipped_digit_is_noticed(cell: Cell, counted: list[str], tmp_path: Path) -> None:
    cache.of(cell)
    (path,) = (tmp_path / "cache" / "bytes").iterdir()
    path.write_bytes(path.read_bytes().replace(b"600000", b"200000"))
    assert cache.of(cell) == REPORT
    assert len(counted) == 2


def test_other_code_is_counted_again(cell: Cell, counted: list[str]) -> None:
    cache.of(cell)
    for part in ("model", "quantizer", "method"):
        edited = replace(getattr(cell, part), code="other")
        cache.of(replace(cell, **{part: edited}))
    assert len(counted) == 4


def test_where_nothing_can_be_saved_bytes_are_counted(
    cell: Cell, counted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "file" / "cache"))
    assert cache.of(cell) == REPORT
    assert cache.of(cell) == REPORT
    assert len(counted) == 2
