"""Which cells share a task, how tasks are cut, and what they cost: by hand, nothing is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tta_bench import config, grid
from tta_bench.api import Method
from tta_bench.grid import Cell
from tta_bench.planning import tasks as plan
from tta_bench.planning.sharing import resolve
from tta_bench.planning.tasks import Task, split, task_passes, tasks
from tta_bench.plugins.identity import PluginIdentity

Write = Callable[..., Path]
Of = Callable[..., list[Cell]]
# Four domains of three batches (16, 16 and 8 images), twice.
STREAM = {"corruptions": ["fog", "snow", "pixelate", "contrast"], "rounds": 2, "batch_size": 16, "limit": 40}
BATCHES = 4 * 3
MADE = PluginIdentity.make


@pytest.fixture
def cells_of(write_yaml: Write) -> Of:
    def make(*methods: object, quantizers: list[Any] | None = None, **stream: Any) -> list[Cell]:
        file = write_yaml(methods=[*methods], quantizers=quantizers or ["fp32"], stream=STREAM | stream)
        return grid.expand(config.load(file))

    return make


def task(*cells: Cell, segments: frozenset[int] | None = None, share: bool = True) -> Task:
    return Task(tuple(resolve(cell, share) for cell in cells), segments)


def facts(cell: Cell) -> tuple[bool, bool, bool]:
    found = resolve(cell)
    return found.stateless, found.repeats, found.rereads


@pytest.mark.parametrize(
    ("method", "stream", "expected"),
    [
        ("source", {}, (True, True, False)),  # no memory
        ("lame", {}, (True, True, False)),  # of a batch
        ("t3a", {}, (False, False, True)),  # of the stream, on features
        ("tent", {}, (False, False, False)),  # of the stream, on images
        ({"use": "t3a", "reset": "domain"}, {}, (True, True, False)),
        ("source", {"order": "reshuffled"}, (True, False, False)),
        ("t3a", {"order": "reshuffled"}, (False, False, False)),
        ("t3a", {"rounds": 1}, (False, False, False)),
        ("source", {"order": "sequential"}, (True, True, False)),
        ("source", {"domain_order": "per-round"}, (True, False, True)),
        ("t3a", {"domain_order": "per-round"}, (False, False, True)),
        ("t3a", {"domain_order": "per-round", "straddle": True, "rounds": 1}, (False, False, False)),
        ("t3a", {"scenario": "gradual", "rounds": 1}, (False, False, True)),
        ("source", {"scenario": "gradual"}, (True, True, True)),
        ("t3a", {"scenario": "gradual", "order": "reshuffled"}, (False, False, False)),
        ("t3a", {"scenario": "mixed", "domain_order": "per-round"}, (False, False, False)),
        ("tent", {"scenario": "gradual"}, (False, False, False)),
    ],
)
def test_what_is_stateless_repeats_and_rereads(
    method: object, stream: dict[str, Any], expected: tuple[bool, bool, bool], cells_of: Of
) -> None:
    assert facts(cells_of(method, **stream)[0]) == expected


# -- sharing ----------------------------------------------------------------------------------------


def test_consumers_of_the_same_features_share_a_task(cells_of: Of) -> None:
    source, tent, lame = cells_of("source", "tent", "lame")
    assert tasks([source, tent, lame]) == [task(tent), task(source, lame)], "the longest first"
    assert tasks([source, lame], share=False) == [task(source, share=False), task(lame, share=False)]


OTHER: dict[str, Any] = {
    "domains": (("fog", 5),),
    "rounds": 3,
    "batch_size": 8,
    "limit": 39,
    "order": "sequential",
    "seed": 2,
    "threads": 2,
}


@pytest.mark.parametrize("fact", OTHER)
def test_cells_of_other_streams_do_not_share(fact: str, cells_of: Of) -> None:
    source, lame = cells_of("source", "lame")
    assert len(tasks([source, lame])) == 1
    assert len(tasks([source, replace(lame, **{fact: OTHER[fact]})])) == 2


@pytest.mark.parametrize("plugin", ["data", "model", "quantizer", "corruptions"])
def test_cells_of_other_code_do_not_share(plugin: str, cells_of: Of) -> None:
    source, lame = cells_of("source", "lame")
    known = getattr(lame, plugin)
    edited: Any = (replace(known[0], code="edited"), *known[1:]) if plugin == "corruptions" else None
    other = replace(lame, **{plugin: edited or replace(known, code="edited")})
    assert len(tasks([source, other])) == 2


def test_a_task_names_the_network_that_its_worker_needs(cells_of: Of) -> None:
    full, quantized = cells_of("source", quantizers=["fp32", "uniform"])
    assert task(full).network == (full.model.digest, full.quantizer.digest)
    assert task(full).network != task(quantized).network


# -- pieces -----------------------------------------------------------------------------------------


def domains(found: list[Task]) -> list[set[int] | None]:
    return [None if task.segments is None else set(task.segments) for task in found]


def test_only_stateless_tasks_are_cut_and_no_more_than_needed(cells_of: Of) -> None:
    source, tent = cells_of("source", "tent")
    whole = task(source)
    assert domains(split([whole], 1)) == [None]
    assert domains(split([whole], 2)) == [{0}, {1}, {2}, {3}], "two pieces for each worker"
    assert domains(split([whole], 99)) == [{0}, {1}, {2}, {3}]
    assert domains(split([task(tent)], 2)) == [None]
    assert domains(split([task(source, tent)], 2)) == [None], "one of its cells has state"
    assert domains(split([whole] * 2, 2)) == [{0, 1}, {2, 3}] * 2
    assert domains(split([whole] * 4, 2)) == [None] * 4
    assert split([], 2) == []


def test_pieces_are_of_neighbouring_domains_and_about_equal(cells_of: Of) -> None:
    (source,) = cells_of("source")
    pieces = list(plan._parts(task(source), 3))
    assert domains(pieces) == [{0}, {1}, {2, 3}]
    assert all(piece.cells == (resolve(source),) for piece in pieces)
    assert list(plan._parts(task(source), 1)) == [task(source)]


def test_the_longest_piece_comes_first(cells_of: Of) -> None:
    source, tent = cells_of("source", "tent")
    found = split([task(source), task(tent)], 2)
    assert found == [task(tent), task(source)]


# -- costs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "stream", "expected"),
    [
        ("source", {}, BATCHES),  # rounds repeat
        ("t3a", {}, BATCHES),  # features are read again
        ("t3a", {"order": "reshuffled"}, 2 * BATCHES),
        ("t3a", {"domain_order": "per-round"}, BATCHES),
        ("source", {"domain_order": "per-round", "rounds": 9}, BATCHES),
        ("t3a", {"scenario": "gradual"}, 5 * BATCHES),  # nine segments of each domain, five severities
        ("source", {"scenario": "gradual"}, 5 * BATCHES),
        ("tent", {"scenario": "gradual", "severity": 3}, 2 * 5 * BATCHES * 3),
        ("tent", {}, 2 * BATCHES * 3),  # a forward, and a backward that counts as two
        ({"use": "tent", "reset": "domain"}, {}, BATCHES * 3),
        ({"use": "foa", "k": 5}, {}, 2 * BATCHES * 5),
        ("sar", {}, 2 * BATCHES * 6),
        ("cotta", {}, 2 * BATCHES * 5),  # 3–35/1: the lower end
        ("tent", {"limit": 48}, 2 * BATCHES * 3),  # three full batches
        ("tent", {"limit": 49}, 2 * 4 * 4 * 3),
        ("tent", {"limit": None, "batch_size": 1000}, 2 * 4 * 2 * 3),  # 2000 images
        ("tent", {"limit": 5000, "batch_size": 1000}, 2 * 4 * 2 * 3),
    ],
)
def test_passes_of_a_task(method: object, stream: dict[str, Any], expected: int, cells_of: Of) -> None:
    (cell,) = cells_of(method, **stream)
    assert task_passes(task(cell)) == expected
    if "scenario" not in stream and "domain_order" not in stream:
        assert task_passes(task(cell, segments=frozenset({1}))) == expected / 4


def test_passes_on_a_subset_are_those_of_its_images(tmp_path: Path, write_yaml: Write) -> None:
    """Before: the 50 000 images of the whole set, unless there was a limit."""
    known = {"models": ["vit-b"], "quantizers": ["fp32"], "methods": ["tent"]}
    stream = {"corruptions": ["fog"], "rounds": 1, "batch_size": 50}
    data = {"use": "imagenet", "root": str(tmp_path), "subset": "robustbench-5000"}
    for limit, expected in ((None, 5_000), (1_000, 1_000), (20_000, 5_000)):
        file = write_yaml(**known, data=data, stream=stream | {"limit": limit})
        (cell,) = grid.expand(config.load(file))
        assert plan.round_images(cell) == expected
        assert task_passes(task(cell)) == 3 * expected / 50


def test_passes_of_a_grid(cells_of: Of) -> None:
    found = plan.passes(cells_of("source", "t3a", "tent"))
    assert found.naive == 2 * BATCHES * (1 + 1 + 3)
    assert found.executed == BATCHES + 2 * BATCHES * 3


def test_a_part_computes_what_other_parts_have_too(cells_of: Of) -> None:
    """The first segment of nine rounds is that of every domain; a part reads no features of other workers."""
    (source,) = cells_of("source", domain_order="per-round", rounds=9)
    firsts = {source.schedule.segments(round)[0] for round in range(1, 10)}
    assert len(firsts) > 2
    assert task_passes(task(source, segments=frozenset({0}))) == 3 * len(firsts)


class Learning(Method):
    """Two forward and one backward pass for a step, and one pass for a prediction."""

    forwards, backwards = 2, 1

    def step(self, x: Tensor) -> Tensor:
        return x

    def predict(self, x: Tensor) -> Tensor:
        return x

    def reset(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}


class Stepping(Learning):
    """Takes a step for a prediction."""

    predict = Method.predict


@pytest.mark.parametrize(
    ("model", "method", "stream", "passes"),
    [
        ("vit-micro", Learning, {}, 4),
        ("vit-micro", Learning, {"adapt_every": 4}, (4 + 3) / 4),
        ("vit-micro", Stepping, {"adapt_every": 4}, 4),
        # A full step for every 8 images, and each of the 7 others alone, or together with the window.
        ("vit-micro", Learning, {"batch_size": 1, "window": 8}, 4 + 7 / 8),
        ("vit-micro", Stepping, {"batch_size": 1, "window": 8}, 4 + 4 * 7 / 8),
        ("resnet-micro", Learning, {"batch_size": 1, "window": 8}, 4 + 7),
        ("resnet-micro", Stepping, {"batch_size": 1, "window": 8}, 4 + 4 * 7),
    ],
)
def test_passes_of_a_batch_at_every_rate(
    model: str,
    method: type[Method],
    stream: dict[str, Any],
    passes: float,
    write_yaml: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write_yaml(models=[model], methods=["tent"], quantizers=["fp32"], stream=STREAM | stream)
    (cell,) = grid.expand(config.load(file))
    monkeypatch.setattr(PluginIdentity, "make", lambda self: method() if self.use == "tent" else MADE(self))
    found = resolve(cell)
    assert found.step_passes == passes
    assert found.predicts_by_steps == (method is Stepping and stream != {})
