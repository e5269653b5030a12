"""Shared fixtures: one thread, a cache of the session's own, a small benchmark."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Before torch and the hub's client are imported, here and in every process that a test starts.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"  # tests ask no network

import pytest
import torch
import yaml

from tta_bench.data.cifar10 import mini
from tta_bench.footprint.account import MemoryReport


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Corrupted sets, calibrations and kernels are made once per session, for all its processes."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # that of the whole session; the cache is safe for several processes
    os.environ["TTA_BENCH_CACHE"] = str(folder / "cache")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Numbers depend on the thread count; a test before may have changed it."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _embedded_images_are_decoded_once() -> Iterator[None]:
    """Every grid and every executor asks for them; each gets a copy of its own."""
    once = functools.cache(mini.read_split)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mini, "read_split", lambda folder, name: copy.deepcopy(once(folder, name)))
        yield


SMALL: dict[str, Any] = {
    "name": "small",
    "data": "cifar10-mini",
    "models": ["resnet-micro"],
    "quantizers": ["fp32", {"use": "uniform", "bits": "W8A8"}],
    "methods": ["source", "bn-adapt", {"use": "tent", "name": "TENT"}],
    "stream": {
        "corruptions": ["gaussian_noise", "fog"],
        "severity": 5,
        "rounds": 2,
        "batch_size": 16,
        "limit": 40,
    },
    "seeds": [1],
    "run": {"engine": "local"},
}


@pytest.fixture
def write_yaml(tmp_path: Path) -> Callable[..., Path]:
    """Write the small benchmark, with changes, and return its path."""

    def write(**changes: Any) -> Path:
        path = tmp_path / "small.yaml"
        path.write_text(yaml.safe_dump(SMALL | changes))
        return path

    return write


@pytest.fixture
def no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting bytes takes longer than most of what is tested, and is tested by itself."""
    report = MemoryReport({}, {}, None, {}, bounded=True)
    monkeypatch.setattr("tta_bench.footprint.cache.of", lambda cell: report)
