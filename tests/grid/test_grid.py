"""Cells: what their keys depend on, and what they do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tta_bench import config, grid
from tta_bench.api import Domain, Stream, StreamSchedule
from tta_bench.errors import ConfigError
from tta_bench.grid.cell import Labels
from tta_bench.planning import tasks as plan
from tta_bench.planning.sharing import resolve
from tta_bench.plugins.identity import PluginIdentity
from tta_bench.streams.continual import Continual

Write = Callable[..., Path]
ONE: dict[str, Any] = {"quantizers": ["fp32"], "methods": ["tent"]}


def keys(path: Path, *overrides: str) -> list[str]:
    return [cell.key for cell in grid.expand(config.load(path, overrides))]


@pytest.mark.parametrize(
    "override",
    [
        "methods[0].lr=0.5",
        "methods[0].reset=domain",
        "stream.batch_size=8",
        "stream.limit=41",
        "stream.order=reshuffled",
        "stream.corruptions=[fog]",
        "stream.severity=4",
        "seeds=[2]",
        "run.threads=2",
        "data.corruption_seed=9",
        "models=[vit-micro]",
        "quantizers=[{use: uniform, bits: W4A4}]",
    ],
)
def test_whatever_can_change_a_number_changes_the_key(override: str, write_yaml: Write) -> None:
    path = write_yaml(**ONE)
    assert keys(path) != keys(path, override)


@pytest.mark.parametrize("override", ["run.workers=7", "run.engine=ray", "methods[0].name=T"])
def test_names_and_workers_leave_the_key_alone(override: str, write_yaml: Write) -> None:
    path = write_yaml(**ONE)
    assert keys(path) == keys(path, override)


def test_keys_are_stable_and_readable(write_yaml: Write) -> None:
    path = write_yaml(**ONE)
    assert keys(path) == keys(path)
    assert keys(path)[0].startswith("resnet-micro.fp32-FP32.tent.s1-")


def test_the_same_method_twice_is_refused(write_yaml: Write) -> None:
    methods = ["tent", {"use": "tent", "name": "again"}]
    with pytest.raises(ConfigError, match='"tent" and "again" are the same method'):
        grid.expand(config.load(write_yaml(methods=methods)))


def test_a_methods_own_seed_is_the_cells_unless_given(write_yaml: Write) -> None:
    methods = ["zoa", {"use": "zoa", "name": "fixed", "seed": 7}]
    cells = grid.expand(config.load(write_yaml(methods=methods, quantizers=["fp32"], seeds=[3])))
    assert [cell.method.params["seed"] for cell in cells] == [3, 7]


def test_feature_consumers_share_one_task(write_yaml: Write) -> None:
    path = write_yaml(methods=["source", "lame", "t3a", "shift", "tent"], quantizers=["fp32"])
    cells = grid.expand(config.load(path))
    tasks = plan.tasks(cells)
    assert sorted(len(task.cells) for task in tasks) == [1, 4]
    cost = plan.passes(cells)
    assert cost.executed < cost.naive


def test_only_stateless_cells_repeat(write_yaml: Write) -> None:
    def repeats(method: Any, **stream: Any) -> bool:
        base = {"corruptions": ["fog"], "rounds": 2, "limit": 8}
        path = write_yaml(methods=[method], quantizers=["fp32"], stream=base | stream)
        cell = grid.expand(config.load(path))[0]
        return resolve(cell).repeats

    assert repeats("source")
    assert repeats("bn-adapt")
    assert repeats({"use": "tent", "reset": "domain"})
    assert not repeats("tent")
    assert not repeats("t3a")
    assert not repeats("lame", order="reshuffled")


def test_a_stream_is_its_seed_alone() -> None:
    def stream(seed: int = 1, order: str = "shuffled") -> Stream:
        schedule = StreamSchedule((Domain("fog", 5),), 2, seed, Continual(), order)
        return Stream(schedule, 4, np.zeros(10, np.int64))

    assert (stream().pairs(1, 0) == stream().pairs(2, 0)).all()
    assert (stream().pairs(1, 0) != stream(seed=2).pairs(1, 0)).any()
    again = stream(order="reshuffled")
    assert (again.pairs(1, 0) != again.pairs(2, 0)).any()
    assert sorted(stream().pairs(1, 0)[:, 1]) == list(range(10))
    assert [len(b) for b in stream().batches(1, 0)] == [4, 4, 2]
    assert stream().fingerprint(1, 0, "a") != stream().fingerprint(1, 0, "b")
    assert stream().fingerprint(1, 0, "a") == stream().fingerprint(2, 0, "a")


FROZEN: dict[str, Any] = {
    "data": PluginIdentity("data", "cifar10-mini", {"source_count": 512}, "1", "images"),
    "model": PluginIdentity("models", "vit-micro", {}, "2", "weights"),
    "quantizer": PluginIdentity("quantizers", "uniform", {"bits": "W8A8"}),
    "method": PluginIdentity("methods", "tent", {"lr": 0.001}),
    "corruptions": (PluginIdentity("corruptions", "fog"),),
    "domains": (("fog", 5), ("clean", 0)),
    "rounds": 10,
    "batch_size": 64,
    "limit": None,
    "order": "shuffled",
    "reset": "never",
    "seed": 2020,
    "threads": 1,
    "labels": Labels("model", "quantizer", "method", (0, 0, 0)),
}


@pytest.mark.parametrize(
    ("stream", "key"),
    [
        ({}, "vit-micro.uniform-W8A8.tent.s2020-49070c88c0d3"),
        (
            {"rounds": 2, "limit": 256, "order": "reshuffled", "reset": "domain", "batch_size": 8},
            "vit-micro.uniform-W8A8.tent.s2020-5aa51fb59cc0",
        ),
    ],
)
def test_keys_of_continual_cells_are_those_of_old_results(stream: dict[str, Any], key: str) -> None:
    """If this fails, cells that were computed before would be computed again."""
    assert grid.Cell(**FROZEN | stream).with_key().key == key
    coded = {name: replace(FROZEN[name], code="edited") for name in ("data", "model", "method")}
    assert grid.Cell(**FROZEN | coded | stream).with_key().key == key
