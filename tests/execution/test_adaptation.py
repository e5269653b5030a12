"""When a method is reset, adapts, or only predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tta_bench import config, grid
from tta_bench.api import Method, Stream
from tta_bench.errors import ConfigError, Unsupported
from tta_bench.execution.cell.adaptation import Adaptation
from tta_bench.execution.executor import Executor
from tta_bench.execution.messages import Start
from tta_bench.grid import Cell
from tta_bench.planning.sharing import resolve
from tta_bench.planning.tasks import round_batches
from tta_bench.storage.record import Record
from tta_bench.tune.goal import goals

Write = Callable[..., Path]


class Listed(Method):
    """Writes down what is asked of it; its state is the sum of all images it has adapted to."""

    def __init__(self, norms: Sequence[str] = ()) -> None:
        self.calls: list[str] = []
        self.total = 0.0
        self.model: Any = SimpleNamespace(batch_norms=lambda: list(norms))

    def step(self, x: Tensor) -> Tensor:
        self.calls.append("step " + " ".join(f"{value:g}" for value in x.flatten().tolist()))
        self.total += float(x.sum())
        return x * 10

    def reset(self) -> None:
        self.calls.append("reset")
        self.total = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


class Predicting(Listed):
    """Can predict without adapting."""

    def predict(self, x: Tensor) -> Tensor:
        self.calls.append("predict " + " ".join(f"{value:g}" for value in x.flatten().tolist()))
        return x * 10


def calls(method: Listed, images: int, before: int = 0, **cell: Any) -> list[str]:
    """What is asked of a method over so many batches of one image."""
    facts = {"reset": "never", "reset_every": None, "adapt_every": 1, "window": 1} | cell
    adaptation = Adaptation(SimpleNamespace(**facts), method)  # type: ignore[arg-type]
    adaptation.begin(0, before)
    for number in range(1, images + 1):
        image = torch.tensor([[float(number)]])
        assert adaptation.output(image).tolist() == [[10.0 * number]], "the answer is about this image"
    return method.calls


def test_as_it_is_every_batch_is_a_step() -> None:
    assert calls(Listed(), 3) == ["step 1", "step 2", "step 3"]


def test_a_reset_comes_before_every_so_many_batches_of_the_whole_stream() -> None:
    every = {"reset": "every 3", "reset_every": 3}
    assert calls(Listed(), 4, **every) == ["reset", "step 1", "step 2", "step 3", "reset", "step 4"]
    assert calls(Listed(), 3, before=4, **every) == ["step 1", "step 2", "reset", "step 3"]


def test_other_batches_than_every_kth_of_a_segment_are_only_predicted() -> None:
    expected = ["step 1", "predict 2", "predict 3", "step 4", "predict 5"]
    assert calls(Predicting(), 5, before=7, adapt_every=3) == expected


def test_after_a_prediction_the_state_is_that_before_it() -> None:
    method = Listed()
    assert calls(method, 5, adapt_every=10)[0] == "step 1"
    assert method.total == 1.0, "that after the first batch"


def test_a_prediction_counts_no_skipped_update() -> None:
    class Skipping(Listed):
        def step(self, x: Tensor) -> Tensor:
            self.skip("why")
            return x * 10

    method = Skipping()
    calls(method, 4, adapt_every=2)
    assert (method.skipped_updates, method.skipped_reasons) == (2, {"why": 2})


def test_a_window_is_adapted_to_when_it_is_full_of_new_images() -> None:
    expected = ["predict 1", "predict 2", "step 1 2 3", "predict 4", "predict 5", "step 4 5 6", "predict 7"]
    assert calls(Predicting(), 7, window=3) == expected


def test_networks_with_batch_norm_predict_from_the_whole_window() -> None:
    expected = ["predict 1", "predict 1 2", "step 1 2 3", "predict 4 2 3", "predict 4 5 3"]
    assert calls(Predicting(["bn"]), 5, window=3) == expected


def test_a_reset_empties_the_window() -> None:
    found = calls(Predicting(["bn"]), 4, window=3, reset="every 2", reset_every=2)
    assert found == ["reset", "predict 1", "predict 1 2", "reset", "predict 3", "predict 3 4"]


def test_after_a_reset_a_window_again_holds_the_last_images() -> None:
    """Before: places went on from the first image, so old images stayed and others were never adapted to."""
    found = calls(Predicting(["bn"]), 9, window=3, reset="every 4", reset_every=4)
    assert found[:6] == ["reset", "predict 1", "predict 1 2", "step 1 2 3", "predict 4 2 3", "reset"]
    assert found[6:10] == ["predict 5", "predict 5 6", "step 5 6 7", "predict 8 6 7"]


def test_what_cannot_predict_is_unsupported() -> None:
    class Stateful(Listed):
        state_dict = Method.state_dict

    for facts in ({"adapt_every": 2, "window": 1}, {"adapt_every": 1, "window": 2}):
        cell: Any = SimpleNamespace(**facts)
        with pytest.raises(Unsupported, match="neither"):
            Adaptation(cell, Stateful()).refuse_if_impossible(False)
        Adaptation(cell, Listed()).refuse_if_impossible(False)


# -- on real networks ---------------------------------------------------------------------------------

STREAM = {"corruptions": ["gaussian_noise", "fog"], "rounds": 2, "batch_size": 16, "limit": 40}


@pytest.fixture
def on(write_yaml: Write, no_bytes: None) -> Callable[..., tuple[Cell, list[Record]]]:
    """A cell of TENT, or of another method, on a stream, and its records without times."""

    def made(method: Any = "tent", **stream: Any) -> tuple[Cell, list[Record]]:
        file = write_yaml(methods=[method], quantizers=["fp32"], stream=STREAM | stream)
        (cell,) = grid.expand(config.load(file))
        deliveries = Executor().run([resolve(cell)], [Start(described=True)])
        records = [record for delivery in deliveries for record in delivery.records]
        assert all(record["status"] == "ok" for record in records), records[0].get("reason")
        own = ("key", "code", "seconds", "repeats", "fingerprint")
        found = [{k: v for k, v in each.items() if k not in own} for each in records]
        return cell, sorted(found, key=lambda r: (r["round"], r["corruption"]))

    return made


On = Callable[..., tuple[Cell, list[Record]]]


def test_resets_that_mean_the_same_give_the_same_numbers(on: On) -> None:
    never, domain, batch = (on(reset=reset)[1] for reset in ("never", "domain", "batch"))
    assert on(reset={"every": 1})[1] == batch
    assert on(reset={"every": 3})[1] == domain, "three batches in every domain"
    assert on(reset={"every": 12})[1] == never, "as long as the stream"
    assert len({str(found) for found in (never, domain, batch)}) == 3


def test_rates_that_mean_the_same_have_the_same_key(on: On) -> None:
    assert on(adapt_every=1)[0].key == on()[0].key
    assert on(batch_size=1, window=1, rounds=1)[0].key == on(batch_size=1, rounds=1)[0].key
    assert on("source", adapt_every=5)[0].key == on("source")[0].key == on("source", reset="batch")[0].key
    assert on(reset={"every": 1})[0].key == on(reset="batch")[0].key
    others: list[dict[str, Any]] = [{"adapt_every": 2}, {"reset": {"every": 2}}, {"reset": "batch"}]
    assert len({on(**each)[0].key for each in ({}, *others)}) == 4


def test_a_method_that_never_adapts_again_does_not_depend_on_the_batches_between(
    on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first batch of a segment is a step: the others may come in any order, or not at all."""
    batches = Stream.batches

    def hits(every: int, *order: int) -> list[list[int]]:
        """The hits of the four batches of both domains, by batch, if they come in this order."""
        with monkeypatch.context() as patch:
            patch.setattr(Stream, "batches", lambda *at: [batches(*at)[number] for number in order])
            _, records = on({"use": "tent", "lr": 1.0}, adapt_every=every, rounds=1, limit=64)
        return [[each["correct_per_batch"][order.index(i)] for i in range(4)] for each in records]

    assert hits(10**6, 0, 2, 1, 3) == hits(10**6, 0, 1, 2, 3)
    assert hits(1, 0, 2, 1, 3) != hits(1, 0, 1, 2, 3)


def test_episodes_can_be_run_in_any_order(on: On) -> None:
    forward = on(reset="batch", rounds=1)[1]
    backward = on(reset="batch", rounds=1, corruptions=["fog", "gaussian_noise"])[1]
    assert forward == backward


def test_a_window_runs_on_a_stream_of_single_images(on: On) -> None:
    stream = {"batch_size": 1, "limit": 12, "rounds": 1, "corruptions": ["fog"]}
    cell, windowed = on(window=4, **stream)
    assert cell.step_images == 4
    assert [len(each["correct_per_batch"]) for each in windowed] == [12]
    assert windowed != on(**stream)[1]


def test_passes_of_a_window_are_planned_as_they_are_made(on: On) -> None:
    """Before: as those of batches, so a network with BatchNorm took seven times as long as planned."""
    cell, records = on("tent", batch_size=1, window=4, limit=12, rounds=1)
    made = sum(each["forward_images"] + 2 * each["backward_images"] for each in records)
    filling = 3 * 4 - (1 + 2 + 3)  # before the first step of a segment, the window is smaller
    assert round_batches(cell) * resolve(cell).step_passes - 2 * filling == made


def test_clean_images_come_in_batches_as_large_as_the_window(on: On) -> None:
    """ActMAD aligns the variance over a batch, which single images do not have."""
    (found,) = on("actmad", batch_size=1, window=4, limit=12, rounds=1, corruptions=["fog"])[1]
    assert found["skipped_updates"] == 0


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        ({"reset": {"evry": 3}}, r"stream\.reset: .*every: N"),
        ({"reset": {"every": 0}}, r"stream\.reset: {'every': 0} does not fit: it must be .*at least 1"),
        ({"reset": "sometimes"}, r"stream\.reset: .*never, domain, batch"),
        ({"window": 4}, r"stream\.window: a window needs batches of one image"),
        ({"window": 4, "batch_size": 1, "adapt_every": 2}, r"stream\.adapt_every: .*Remove one"),
        ({"window": 4, "batch_size": 1, "reset": "batch"}, r"stream\.window: .*never full"),
        ({"window": 4, "batch_size": 1, "reset": {"every": 3}}, r"stream\.window: .*never full"),
        ({"straddle": True, "reset": "domain"}, r"stream\.straddle: .*another reset"),
        ({"domain_order": {"cotta": 10}}, r"stream\.domain_order: .*0 to 9 or all"),
        ({"domain_order": ["file", "fill"]}, r"stream\.domain_order\[1\]: .*per-seed"),
        ({"domain_order": ["file", "file"]}, r"stream\.domain_order\[1\]: given twice"),
        ({"domain_order": {"cotta": "all"}}, r"stream\.domain_order: .*the same for these 2 corruptions"),
        ({"domain_order": {"cotta": 1}, "corruptions": ["spatter"]}, r"stream\.domain_order: .*spatter"),
        ({"scenario": "continal"}, r'stream\.scenario: unknown scenario "continal".*continual'),
        ({"scenario": ["continual", "continual"]}, r"stream\.scenario: 2 entries"),
        (
            {"scenario": ["mixed", {"use": "mixed", "name": "b"}]},
            r'stream\.scenario: "mixed" and "b" are the same scenario .*Remove one',
        ),
        (
            {"scenario": ["correlated", {"use": "correlated", "name": "b", "gamma": 0.1}]},
            r'stream\.scenario: "correlated" and "b" are the same scenario',
        ),
        ({"protocol": "roid"}, r'stream\.protocol: unknown protocol "roid"'),
    ],
)
def test_contradictions_are_named_with_their_remedy(
    stream: dict[str, Any], problem: str, write_yaml: Write
) -> None:
    with pytest.raises(ConfigError, match=problem):
        config.load(write_yaml(stream=STREAM | stream))


def test_tuning_refuses_other_scenarios(write_yaml: Write) -> None:
    stream = {"corruptions": ["spatter"], "scenario": "mixed"}
    with pytest.raises(ConfigError, match=r"stream\.scenario: tuning runs on continual streams only"):
        goals(config.load(write_yaml(stream=stream)), "file")
