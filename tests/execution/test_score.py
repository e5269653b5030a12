"""Counts of one domain."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tta_bench.execution.cell import score
from tta_bench.execution.cell.score import Score


def test_hits_top_five_and_calibration_by_hand() -> None:
    found = Score()
    sure = torch.eye(6)[[0, 1, 2]]  # one class each, with certainty
    found.add(sure, torch.tensor([0, 1, 3]), "probabilities")
    found.add(torch.full((1, 6), 1 / 6), torch.tensor([5]), "probabilities")
    summary = found.summary()
    assert summary["images"] == 4
    assert summary["correct_per_batch"] == [2, 0]
    assert summary["correct"] == 2
    assert summary["ece"] == pytest.approx((abs(2 - 3) + abs(0 - 1 / 6)) / 4)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_a_row_that_is_not_finite_is_a_miss(wrong: float) -> None:
    found, logits = Score(), torch.tensor([[9.0, 0.0], [9.0, 0.0]])
    logits[0, 1] = wrong
    found.add(logits, torch.tensor([0, 0]), "logits")
    summary = found.summary()
    assert (summary["correct"], summary["top5_correct"], summary["nonfinite_images"]) == (1, 1, 1)


def _stream() -> list[tuple[Tensor, Tensor]]:
    rng = torch.Generator().manual_seed(0)
    return [
        (torch.randn(n, 10, generator=rng), torch.randint(10, (n,), generator=rng)) for n in (8, 8, 3) * 5
    ]


@pytest.mark.parametrize("gathered", [1, 200, 10**6])
def test_gathering_and_stopping_change_nothing(gathered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Score()
    monkeypatch.setattr(score, "GATHERED_NUMBERS", 1)
    for output, labels in _stream():
        plain.add(output, labels, "logits")
    monkeypatch.setattr(score, "GATHERED_NUMBERS", gathered)
    found = Score()
    for i, (output, labels) in enumerate(_stream()):
        found.add(output, labels, "logits")
        output.zero_()  # a method may use its buffer again
        if i == 6:
            state, found = found.state_dict(), Score()
            found.load_state_dict(state)
    assert found.summary() == plain.summary()


def test_counts_equal_those_of_plain_loops() -> None:
    rng = torch.Generator().manual_seed(1)
    logits, labels = 2 * torch.randn(300, 20, generator=rng), torch.randint(20, (300,), generator=rng)
    logits[:40] /= 100  # confidences in the lowest bins
    labels[::2] = logits[::2].argmax(1)  # gaps of both signs, so that other bins give another sum
    bins: dict[int, list[float]] = {}
    top5 = 0
    for row, label in zip(logits.double().softmax(1).tolist(), labels.tolist(), strict=True):
        ordered = sorted(range(20), key=lambda i: -row[i])
        top5 += label in ordered[:5]
        confidence = row[ordered[0]]
        bin = next(b for b in range(15) if confidence <= (b + 1) / 15)
        bins.setdefault(bin, []).append((ordered[0] == label) - confidence)
    found = Score()
    found.add(logits.double(), labels, "logits")
    summary = found.summary()
    assert summary["top5_correct"] == top5
    assert summary["ece"] == pytest.approx(sum(abs(sum(gaps)) for gaps in bins.values()) / 300)
    assert {0, 1} <= bins.keys()


def test_gaps_of_the_two_lowest_bins_do_not_cancel() -> None:
    found = Score()
    hit = torch.tensor([0.06] + 19 * [0.94 / 19])
    miss = torch.tensor([0.1] + 19 * [0.9 / 19])
    found.add(torch.stack([hit, miss]), torch.tensor([0, 1]), "probabilities")
    assert found.summary()["ece"] == pytest.approx((0.94 + 0.1) / 2)


def test_a_single_image_is_divided_by_one() -> None:
    found = Score()
    found.add(torch.tensor([[0.8, 0.2]]), torch.tensor([0]), "probabilities")
    assert found.summary()["ece"] == pytest.approx(0.2)


def test_outputs_are_gathered_until_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "GATHERED_NUMBERS", 20)
    found = Score()
    for expected in (0, 2, 2, 4):  # ten numbers each
        found.add(torch.eye(5)[:2], torch.tensor([0]).repeat(2), "probabilities")
        assert len(found.batches) == expected
    assert "_waiting" not in found.state_dict()


def test_every_class_has_the_same_weight_in_the_accuracy_per_class() -> None:
    """Of class 0, 3 of 4 images are right; of class 2, the only one is wrong; class 1 has no image."""
    found, labels = Score(), torch.tensor([0, 0, 0, 0, 2])
    found.add(torch.eye(3)[[0, 0, 0, 1, 1]], labels, "probabilities")
    assert found.summary()["class_accuracy"] == 0.375
    older = {name: value for name, value in found.state_dict().items() if name != "classes"}
    resumed = Score()
    resumed.load_state_dict(older)
    resumed.add(torch.eye(3)[[0]], labels[:1], "probabilities")
    assert "class_accuracy" not in resumed.summary(), "an older checkpoint has not counted its part"
