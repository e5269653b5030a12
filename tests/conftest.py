"""Shared fixtures: one thread, a cache of the session's own, a small benchmark."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tta_bench.memory import MemoryReport

os.environ["HF_HUB_OFFLINE"] = "1"  # before the hub's client is imported: tests ask no network


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Corrupted sets and calibrations are made in the session's folder, also by Ray's workers."""
    os.environ["TTA_BENCH_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    torch.set_num_threads(1)


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
    monkeypatch.setattr("tta_bench.accounts.of", lambda cell: report)
