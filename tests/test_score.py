"""Counts of one domain."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tta_bench import score
from tta_bench.score import Score


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
