"""Counts of one domain: hits per batch and per class, top-5 hits, calibration error."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ECE_BINS = 15
GATHERED_NUMBERS = 1 << 18  # counting costs a dozen small operations, whatever the batch size


class Score:
    """Counts the predictions of one domain; small batches are collected and counted together."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.images = self.top5 = self.nonfinite = 0
        # per confidence bin: images, hits, summed confidence
        self.bins = torch.zeros(3, ECE_BINS, dtype=torch.float64)
        # per class: images, hits; None in a state that was saved without them
        self.classes: Tensor | None = torch.zeros(2, 0, dtype=torch.long)
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []  # probabilities, finite rows, labels

    def add(self, output: Tensor, labels: Tensor, kind: str) -> None:
        """Add one batch of logits or probabilities. A row that is not finite counts as wrong."""
        p = output.clone() if kind == "probabilities" else output.softmax(1)
        self._waiting.append((p, output.isfinite().all(1), labels))
        if sum(p.numel() for p, _, _ in self._waiting) >= GATHERED_NUMBERS:
            self._count()

    def _count(self) -> None:
        """Count the collected batches."""
        if not self._waiting:
            return
        sizes = [len(labels) for _, _, labels in self._waiting]
        outputs, finite, labels = (torch.cat(parts) for parts in zip(*self._waiting, strict=True))
        self._waiting = []
        p = outputs.double().nan_to_num()
        confidence, predicted = p.max(1)
        hit = (predicted == labels) & finite
        best = p.topk(min(5, p.shape[1]), dim=1).indices
        self.images += len(labels)
        self.batches += [int(hits.sum()) for hits in hit.split(sizes)]
        self.top5 += int(((best == labels[:, None]).any(1) & finite).sum())
        self.nonfinite += int((~finite).sum())
        self._count_classes(labels, hit, p.shape[1])
        index = (confidence * ECE_BINS).ceil().long().clamp(1, ECE_BINS) - 1
        self.bins.index_add_(1, index, torch.stack([torch.ones_like(confidence), hit, confidence]))

    def _count_classes(self, labels: Tensor, hit: Tensor, classes: int) -> None:
        if self.classes is None:
            return
        if not self.classes.shape[1]:
            self.classes = torch.zeros(2, classes, dtype=torch.long)
        self.classes.index_add_(1, labels.long(), torch.stack([torch.ones_like(hit), hit]).long())

    def state_dict(self) -> dict[str, Any]:
        """The counts as plain data."""
        self._count()
        return {name: value for name, value in vars(self).items() if name != "_waiting"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from saved counts."""
        vars(self).update({"classes": None} | state)

    def summary(self) -> dict[str, Any]:
        """The fields of a record."""
        self._count()
        found: dict[str, Any] = {}
        if self.classes is not None and self.images:
            images, hits = self.classes[:, self.classes[0] > 0].double()
            found["class_accuracy"] = float((hits / images).mean())
        gap = (self.bins[1] - self.bins[2]).abs().sum() / max(1, self.images)
        return found | {
            "images": self.images,
            "correct": sum(self.batches),
            "correct_per_batch": self.batches,
            "top5_correct": self.top5,
            "ece": float(gap),
            "nonfinite_images": self.nonfinite,
        }
