"""Features kept on disk between rounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tta_bench.config import load
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.execution.executor import Executor
from tta_bench.execution.feature_cache import FeatureCache
from tta_bench.grid import Cell, expand
from tta_bench.models.micro import VitMicro
from tta_bench.models.vit import VitModel
from tta_bench.planning.sharing import resolve


def test_what_comes_out_is_what_went_in() -> None:
    cache, rng = FeatureCache(), torch.Generator().manual_seed(0)
    batches = {i: torch.randn(i + 1, 5, generator=rng) for i in range(4)}
    for i, z in batches.items():
        cache.put(i, z, float(i))
    for i, z in batches.items():
        found = cache.get(i)
        assert found is not None
        assert torch.equal(found[0], z)
        assert found[1] == i
    assert cache.get("other") is None


def test_the_first_to_come_stay_and_the_bound_holds() -> None:
    cache = FeatureCache(limit_bytes=100)
    for i in range(3):
        cache.put(i, torch.zeros(10), 0.0)  # 40 bytes
    assert [cache.get(i) is not None for i in range(3)] == [True, True, False]
    assert cache.held_bytes == 80


def test_readers_do_not_share_memory() -> None:
    cache = FeatureCache()
    cache.put(0, torch.zeros(3), 0.0)
    first = cache.get(0)
    assert first is not None
    first[0].add_(1)
    again = cache.get(0)
    assert again is not None
    assert again[0].sum() == 0


def test_where_nothing_can_be_kept_features_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "file" / "cache"))
    cache = FeatureCache()
    cache.put(0, torch.zeros(3), 0.0)
    assert cache.get(0) is None
    assert cache.held_bytes == 0


@pytest.mark.parametrize(("room_for", "computed"), [(80, 80), (40, 120), (0, 160)])
def test_methods_and_rounds_share_passes_and_numbers(
    write_yaml: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, room_for: int, computed: int
) -> None:
    """Two domains of 40 images: the second round computes what had no room; the records are the same."""
    path = write_yaml(models=["vit-micro"], quantizers=["fp32"], methods=["shift", "t3a"])
    cells, seen, compute = expand(load(path)), [], VitModel.features
    apart = [record for cell in cells for record in results(cell)]
    width = VitMicro().build().classifier.in_features
    monkeypatch.setattr(FeatureCache.__init__, "__defaults__", (room_for * width * 4,))
    monkeypatch.setattr(VitModel, "features", lambda model, x: seen.append(len(x)) or compute(model, x))
    assert sorted(map(str, results(*cells))) == sorted(map(str, apart))
    clean = len(Cifar10Mini().source_images())  # shift reads them once
    assert sum(seen) == clean + computed


def results(*cells: Cell) -> list[dict[str, Any]]:
    """What was found, without how long it took."""
    deliveries = Executor().run([resolve(cell) for cell in cells])
    records = [record for delivery in deliveries for record in delivery.records]
    return [{k: v for k, v in record.items() if k != "seconds"} for record in records]
