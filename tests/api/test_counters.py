"""What a method counts for itself: read at the end of every domain into the record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SMALL
from tta_bench.config import load
from tta_bench.execution.executor import Executor
from tta_bench.grid import Cell, expand
from tta_bench.models.micro import VitMicro
from tta_bench.planning.sharing import resolve
from tta_bench.testing.bench import Bench
from tta_bench.testing.method_checks import state_continues
from tta_bench_methods.source import NoAdaptation
from tta_bench_methods.zoa import Zoa

STREAM = SMALL["stream"] | {"corruptions": ["contrast", "brightness"], "rounds": 2}
EVERY_BATCH = {"use": "zoa", "bank_size": 2, "tau": 0.0, "min_batch": 1}  # is a new domain


def one_cell(write_yaml: Callable[..., Path], method: Any, **stream: Any) -> Cell:
    path = write_yaml(models=["vit-micro"], quantizers=["fp32"], methods=[method], stream=STREAM | stream)
    (cell,) = expand(load(path))
    return cell


def records(cell: Cell) -> list[dict[str, Any]]:
    return [record for delivery in Executor().run([resolve(cell)]) for record in delivery.records]


def test_records_count_detected_shifts_and_stored_vectors(write_yaml: Callable[..., Path]) -> None:
    found = records(one_cell(write_yaml, EVERY_BATCH))
    shifts, vectors = ([r["counters"][n] for r in found] for n in ("detected_shifts", "stored_vectors"))
    batches = [len(record["correct_per_batch"]) for record in found]
    assert shifts == [sum(batches[: i + 1]) - 1 for i in range(len(found))]
    assert shifts[-1] > 2
    assert vectors == [min(count, 2) for count in shifts]


def test_counts_start_over_with_a_reset(write_yaml: Callable[..., Path]) -> None:
    found = records(one_cell(write_yaml, EVERY_BATCH, reset="domain"))
    shifts = [record["counters"]["detected_shifts"] for record in found]
    assert shifts == [len(record["correct_per_batch"]) - 1 for record in found]


def test_a_method_without_counts_leaves_the_record_as_it_was(write_yaml: Callable[..., Path]) -> None:
    assert all("counters" not in record for record in records(one_cell(write_yaml, "source")))


def test_a_count_below_zero_fails_the_cell(
    write_yaml: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NoAdaptation, "counters", lambda self: {"debts": -1})
    found = records(one_cell(write_yaml, "source"))[-1]
    assert found["status"] == "failed"
    assert "the method counts below zero: {'debts': -1}" in found["reason"]


def test_the_contract_asks_that_counts_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Zoa.load_state_dict
    monkeypatch.setattr(Zoa, "load_state_dict", lambda self, state: whole(self, state | {"shifts": 99}))
    bench = Bench(lambda: Zoa(min_batch=1), VitMicro().build())
    with pytest.raises(AssertionError, match="save what it counts"):
        state_continues(bench)
