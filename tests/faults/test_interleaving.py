"""Pieces of cells on several workers, in every order that a seed makes: same records, nothing lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import benchmark
from tests.helpers.interleaving import Interleaved
from tta_bench import config, grid
from tta_bench.execution.messages import RunPolicy
from tta_bench.grid import Cell
from tta_bench.storage.record import Record
from tta_bench.storage.store import ResultStore

pytestmark = pytest.mark.usefixtures("no_bytes")
Numbers = dict[tuple[Any, ...], Record]
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 4))]
METHODS = [
    {"use": "drift", "reset": "domain"},
    {"use": "drift", "name": "remembers"},
    {"use": "unsaved", "reset": "domain"},
    "source",
    "lame",
    "t3a",
]


@pytest.fixture
def cells() -> list[Cell]:
    stream = {"corruptions": ["gaussian_noise", "fog", "contrast"], "batch_size": 8, "limit": 24}
    return grid.expand(config.parse(benchmark(METHODS, stream=stream)))


def numbers(store: ResultStore, cells: list[Cell]) -> Numbers:
    found: Numbers = {}
    for cell in cells:
        for record in store.read(cell.key):
            assert record["status"] == "ok", record["reason"]
            place = (cell.key, record["round"], record["corruption"])
            assert place not in found, "recorded twice"
            found[place] = {name: value for name, value in record.items() if name != "seconds"}
        assert (store.description(cell.key) or {}).get("memory_bytes") is not None, "no description"
    assert len(found) == sum(cell.records_expected for cell in cells)
    return found


@pytest.fixture(scope="module")
def known() -> dict[str, Numbers]:
    return {}


@pytest.fixture
def undisturbed(
    cells: list[Cell], known: dict[str, Numbers], tmp_path_factory: pytest.TempPathFactory
) -> Numbers:
    """The records of one worker that nothing happens to; computed once, as plugins come with each test."""
    if "calm" not in known:
        run = Interleaved(cells, tmp_path_factory.mktemp("calm"), seed=0, workers=1)
        known["calm"] = numbers(run.run(), cells)
    return known["calm"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("workers", [2, 9])
def test_any_order_of_answers_gives_the_same_records_and_descriptions(
    seed: int, workers: int, cells: list[Cell], undisturbed: Numbers, tmp_path: Path
) -> None:
    """Before: a piece that started right after another had described the cell lost the description."""
    assert numbers(Interleaved(cells, tmp_path, seed, workers).run(), cells) == undisturbed


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_workers_and_lost_drivers_change_nothing(
    seed: int, cells: list[Cell], undisturbed: Numbers, tmp_path: Path
) -> None:
    seen: set[str] = set()
    for attempt, stop_after in enumerate((3 + seed, 17, 31, None)):
        run = Interleaved(cells, tmp_path, 10 * seed + attempt, losses=0.1, stop_after=stop_after)
        store = run.run()
        here = {str(record) for cell in cells for record in store.read(cell.key) if savable(cell)}
        assert seen <= here, "a recorded domain was computed again"
        seen = here
    assert numbers(store, cells) == undisturbed


def savable(cell: Cell) -> bool:
    """A method without a state starts its stream over, unless it forgets at every domain."""
    return cell.method.use != "unsaved" or cell.reset == "domain"


@pytest.mark.parametrize("stop_after", [5, 9, 12])
def test_without_sharing_a_resumed_cell_keeps_what_it_has(
    stop_after: int, cells: list[Cell], tmp_path: Path
) -> None:
    """Before: a cell resumed with `share: false` computed recorded rounds again."""
    (cell,) = [cell for cell in cells if cell.labels.method == "source"]
    alone = RunPolicy(checkpoint_seconds=0, share=False)
    first = Interleaved([cell], tmp_path, 1, workers=1, stop_after=stop_after, policy=alone).run()
    kept = set(map(str, first.read(cell.key)))
    assert 0 < len(kept) < cell.records_expected
    whole = Interleaved([cell], tmp_path, 2, policy=alone).run().read(cell.key)
    assert kept <= set(map(str, whole))
    assert not any("repeats" in record for record in whole), "every round was computed"
