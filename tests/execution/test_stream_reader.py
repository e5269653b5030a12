"""Batches and features of one task: what is computed, what is read again, and who may change it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tta_bench.api import Domain, Scenario, Stream, StreamSchedule
from tta_bench.execution.stream_reader import StreamReader
from tta_bench.streams.continual import Continual
from tta_bench.streams.gradual import Gradual

FOG_SEGMENT, SNOW_SEGMENT = 0, 1
FOG, SNOW = Domain("fog", 5), Domain("snow", 5)
CPU = torch.device("cpu")
CONTINUAL = Continual()


class Images:
    """Ten images of one number each: the image's own, and a hundred more on snow."""

    read_ahead = 0

    def __init__(self, labels: list[int] | None = None) -> None:
        self.labels = np.array([0, 1, 2, 3, 4] * 2 if labels is None else labels, np.int64)
        self.held = {FOG: torch.arange(10.0)[:, None], SNOW: torch.arange(100.0, 110.0)[:, None]}
        self.read: list[int] = []

    def test_labels(self) -> np.ndarray:
        return self.labels

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        self.read += index.tolist()
        return self.held[domain][int(index[0]) : int(index[-1]) + 1]  # no copy: the data itself


class Doubling:
    """A backbone that counts what it computes."""

    device = CPU

    def __init__(self) -> None:
        self.passes: list[float] = []

    def features(self, images: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        self.passes.append(float(images[0, 0]))
        return 2 * images


def feed_of(
    data: Any,
    keep: bool = False,
    order: str = "sequential",
    classes: int = 5,
    count: int = 10,
    domain_order: str = "file",
    scenario: Scenario = CONTINUAL,
) -> StreamReader:
    """Batches of 4, 4 and 2 images."""
    schedule = StreamSchedule((FOG, SNOW), 3, 0, scenario, order, domain_order)
    stream = Stream(schedule, 4, np.zeros(count, np.int64))
    cell: Any = SimpleNamespace(data=SimpleNamespace(use="mine"), stream=lambda labels: stream)
    return StreamReader(data, cell, classes, keep)


def values(batches: Any) -> list[list[float]]:
    return [batch.flatten().tolist() for batch, _ in batches]


def starts(feed: StreamReader, model: Any, round: int, segment: int, first: int = 0) -> list[float]:
    """The first features of every batch."""
    return [batch[0] for batch in values(feed.features(model, round, segment, first))]


# -- images and labels ------------------------------------------------------------------------------


def test_images_come_in_batches_from_the_first_wanted() -> None:
    data = Images()
    feed = feed_of(data)
    assert values(feed.images(1, SNOW_SEGMENT, 0, CPU)) == [
        [100, 101, 102, 103],
        [104, 105, 106, 107],
        [108, 109],
    ]
    data.read.clear()
    assert values(feed.images(1, FOG_SEGMENT, 2, CPU)) == [[8, 9]]
    assert data.read == [8, 9]
    assert [seconds for _, seconds in feed.images(1, FOG_SEGMENT, 0, CPU)] == [0.0] * 3
    assert [each.labels.tolist() for each in feed.targets(1, FOG_SEGMENT)] == [
        [0, 1, 2, 3],
        [4, 0, 1, 2],
        [3, 4],
    ]


def test_a_method_that_changes_its_images_does_not_change_the_data() -> None:
    data = Images()
    for batch, _ in feed_of(data).images(1, FOG_SEGMENT, 0, CPU):
        batch.zero_()
    assert data.held[FOG].flatten().tolist() == list(range(10))


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([], "has no test images"),
        ([0, 5], "labels from 0 to 5, and the model knows 5"),
        ([-1, 0], "from -1 to 0"),
    ],
)
def test_labels_that_no_class_has_are_refused(labels: list[int], problem: str) -> None:
    with pytest.raises(ValueError, match=f"data mine has .*{problem}|data mine {problem}"):
        feed_of(Images(labels))


def test_the_lowest_and_the_highest_class_are_no_problem() -> None:
    feed_of(Images([0, 4]))


# -- features ---------------------------------------------------------------------------------------


def test_features_of_a_domain_are_computed_once_for_all_methods() -> None:
    data, model = Images(), Doubling()
    feed = feed_of(data)
    assert starts(feed, model, 1, FOG_SEGMENT) == [0, 8, 16]
    assert starts(feed, model, 1, FOG_SEGMENT) == [0, 8, 16]
    assert starts(feed, model, 1, FOG_SEGMENT, 1) == [8, 16]
    assert model.passes == [0, 4, 8]
    assert len(data.read) == 10


def test_what_a_stopped_method_has_computed_is_used_by_the_next() -> None:
    data, model = Images(), Doubling()
    feed = feed_of(data)
    assert starts(feed, model, 1, FOG_SEGMENT, 1) == [8, 16]
    data.read.clear()
    assert starts(feed, model, 1, FOG_SEGMENT) == [0, 8, 16]
    assert model.passes == [4, 8, 0]
    assert data.read == [0, 1, 2, 3]


def test_a_method_that_stopped_after_the_first_batch_leaves_the_others_to_be_read() -> None:
    data, model = Images(), Doubling()
    feed = feed_of(data)
    next(feed.features(model, 1, FOG_SEGMENT, 0))  # type: ignore[arg-type]
    assert starts(feed, model, 1, FOG_SEGMENT) == [0, 8, 16]
    assert model.passes == [0, 4, 8]


def test_a_last_batch_of_one_image_has_features() -> None:
    feed = feed_of(Images(), count=9)
    assert values(feed.features(Doubling(), 1, FOG_SEGMENT, 2)) == [[16]]  # type: ignore[arg-type]


def test_every_backbone_has_features_of_its_own() -> None:
    feed, one, other = feed_of(Images()), Doubling(), Doubling()
    starts(feed, one, 1, FOG_SEGMENT)
    assert starts(feed, other, 1, FOG_SEGMENT) == [0, 8, 16]
    assert one.passes == other.passes == [0, 4, 8]


def test_a_method_that_changes_its_features_does_not_change_those_of_others() -> None:
    feed, model = feed_of(Images()), Doubling()
    for z, _ in feed.features(model, 1, FOG_SEGMENT, 0):  # type: ignore[arg-type]
        z.zero_()
    assert starts(feed, model, 1, FOG_SEGMENT) == [0, 8, 16]


@pytest.mark.parametrize(("keep", "passes"), [(True, 6), (False, 9)])
def test_features_of_an_earlier_round_are_on_disk_if_they_are_read_again(keep: bool, passes: int) -> None:
    feed, model = feed_of(Images(), keep), Doubling()
    for round, segment, expected in [(1, 0, [0, 8, 16]), (1, 1, [200, 208, 216]), (2, 0, [0, 8, 16])]:
        assert starts(feed, model, round, segment) == expected
    assert len(model.passes) == passes


def test_of_features_on_disk_those_that_are_missing_are_computed() -> None:
    feed, model = feed_of(Images(), keep=True), Doubling()
    starts(feed, model, 1, FOG_SEGMENT, 2)
    starts(feed, model, 1, SNOW_SEGMENT)
    model.passes.clear()
    assert starts(feed, model, 2, FOG_SEGMENT) == [0, 8, 16]
    assert model.passes == [0, 4]


def test_the_same_domain_in_another_round_is_the_same_where_batches_are_fixed() -> None:
    feed, model = feed_of(Images()), Doubling()
    starts(feed, model, 1, FOG_SEGMENT)
    starts(feed, model, 2, FOG_SEGMENT)
    assert len(model.passes) == 3


def test_features_of_a_domain_are_read_again_wherever_it_comes() -> None:
    """Before: they were stored by the number of the segment, so only rounds in the same order read them."""
    feed, model = feed_of(Images(), keep=True, domain_order="per-round"), Doubling()
    schedule = feed.stream.schedule
    assert len({schedule.segments(round) for round in (1, 2, 3)}) == 2, "both orders come"
    for round in (1, 2, 3):
        for index, segment in enumerate(schedule.segments(round)):
            expected = [0, 8, 16] if segment.domains == (FOG,) else [200, 208, 216]
            assert starts(feed, model, round, index) == expected
    assert len(model.passes) == 6


def test_both_visits_of_a_severity_share_their_features() -> None:
    data, model = Images(), Doubling()
    data.held = {Domain(name, s): data.held[FOG] + s for name in ("fog", "snow") for s in range(1, 6)}
    feed = feed_of(data, keep=True, scenario=Gradual())
    for index in range(18):
        severity = 5 - abs(index % 9 - 4)
        assert starts(feed, model, 1, index)[0] == 2 * severity
    assert len(model.passes) == 2 * 5 * 3


class Shuffled(Images):
    """Batches are any images, not neighbours."""

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        return self.held[domain][torch.from_numpy(index)]


def test_reshuffled_rounds_have_features_of_their_own() -> None:
    feed, model = feed_of(Shuffled(), order="reshuffled"), Doubling()
    first, second = (starts(feed, model, round, FOG_SEGMENT) for round in (1, 2))
    assert len(model.passes) == 6
    assert first != second
    expected = [2 * float(pairs[0, 1]) for pairs in feed.stream.batches(2, 0)]
    assert second == expected


def test_seconds_are_those_of_the_pass_that_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.0, 20.0, 23.0, 30.0, 34.0])
    monkeypatch.setattr("tta_bench.execution.stream_reader.time.perf_counter", lambda: next(clock))
    feed, model = feed_of(Images()), Doubling()
    for _ in range(2):
        found = [seconds for _, seconds in feed.features(model, 1, FOG_SEGMENT, 0)]  # type: ignore[arg-type]
        assert found == [2.0, 3.0, 4.0]
