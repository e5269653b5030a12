"""Cells: what their keys depend on, and what they do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tta_bench import config, grid
from tta_bench.api import Domain, Stream
from tta_bench.errors import ConfigError
from tta_bench.planning import tasks as plan
from tta_bench.planning.sharing import resolve

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
    def stream(**changes: Any) -> Stream:
        facts = dict(domains=(Domain("fog", 5),), rounds=2, batch_size=4, count=10, order="shuffled", seed=1)
        return Stream(**(facts | changes))

    fog = Domain("fog", 5)
    assert (stream().index(1, fog) == stream().index(2, fog)).all()
    assert (stream().index(1, fog) != stream(seed=2).index(1, fog)).any()
    again = stream(order="reshuffled")
    assert (again.index(1, fog) != again.index(2, fog)).any()
    assert sorted(stream().index(1, fog)) == list(range(10))
    assert [len(b) for b in stream().batches(1, fog)] == [4, 4, 2]
    assert stream().fingerprint(1, fog, "a") != stream().fingerprint(1, fog, "b")
    assert stream().fingerprint(1, fog, "a") == stream().fingerprint(2, fog, "a")
