"""Counts of one domain: hits per batch, top-5 hits, calibration error."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ECE_BINS = 15


class Score:
    """Adds up predictions of one domain, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.images = self.top5 = self.nonfinite = 0
        # per confidence bin: images, hits, summed confidence
        self.bins = torch.zeros(3, ECE_BINS, dtype=torch.float64)

    def add(self, output: Tensor, labels: Tensor, kind: str) -> None:
        """Count one batch of logits or probabilities. A row that is not finite is a miss."""
        finite = output.isfinite().all(1)
        p = (output if kind == "probabilities" else output.softmax(1)).double().nan_to_num()
        confidence, predicted = p.max(1)
        hit = (predicted == labels) & finite
        best = p.topk(min(5, p.shape[1]), dim=1).indices
        self.images += len(labels)
        self.batches.append(int(hit.sum()))
        self.top5 += int(((best == labels[:, None]).any(1) & finite).sum())
        self.nonfinite += int((~finite).sum())
        index = (confidence * ECE_BINS).ceil().long().clamp(1, ECE_BINS) - 1
        self.bins.index_add_(1, index, torch.stack([torch.ones_like(confidence), hit, confidence]))

    def summary(self) -> dict[str, Any]:
        """The counts as a record has them."""
        gap = (self.bins[1] - self.bins[2]).abs().sum() / max(1, self.images)
        return {
            "images": self.images,
            "correct": sum(self.batches),
            "correct_per_batch": self.batches,
            "top5_correct": self.top5,
            "ece": float(gap),
            "nonfinite_images": self.nonfinite,
        }
