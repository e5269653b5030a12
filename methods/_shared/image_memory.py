"""Memories of images of the stream: NOTE's PBRS and RoTTA's CSTU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import torch
from torch import Tensor

from tta_bench_methods._shared.gradient import derived_seed


class ImageMemory:
    """At most `capacity` images with the classes that were predicted for them."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.images: list[Tensor] = []
        self.labels: list[int] = []
        self.arrived = 0  # images that were offered so far

    def __len__(self) -> int:
        return len(self.images)

    def batch(self) -> Tensor:
        """All images."""
        return torch.stack(self.images)

    def parts(self, x: Tensor) -> Iterator[Tensor]:
        """Yield a batch in parts which end where the count of images reaches a multiple of the capacity.

        The caller offers the images of a part before it asks for the next, or leaves out a broken part.
        """
        while len(x):
            first = self.capacity - self.arrived % self.capacity
            yield x[:first]
            x = x[first:]

    def largest_classes(self) -> set[int]:
        """The classes with the most images."""
        counts = Counter(self.labels)
        most = max(counts.values())
        return {label for label, count in counts.items() if count == most}

    def fill_(self, image: Tensor) -> None:
        """Bring it to its full size with copies of an image, for byte counts."""
        self.images = [image.clone() for _ in range(self.capacity)]
        self.labels = [0] * self.capacity
        self.arrived = self.capacity - 1  # so that the next image makes the memory due

    def state_dict(self) -> dict[str, Any]:
        """Everything that later decisions depend on."""
        images = torch.stack(self.images) if self.images else None
        return {"images": images, "labels": list(self.labels), "arrived": self.arrived}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of `state_dict`."""
        self.images = [] if state["images"] is None else list(state["images"].clone())
        self.labels, self.arrived = list(state["labels"]), state["arrived"]


class PbrsMemory(ImageMemory):
    """Prediction-balanced reservoir sampling: classes get equal shares, images of a class equal chances."""

    def __init__(self, capacity: int, seed: int) -> None:
        super().__init__(capacity)
        self.seed = seed
        self.seen: dict[int, int] = {}  # images that were offered, per class

    def offer_(self, image: Tensor, label: int) -> None:
        """Keep the image, perhaps in place of another one."""
        self.arrived += 1
        self.seen[label] = self.seen.get(label, 0) + 1
        if len(self) < self.capacity:
            self.images.append(image.clone())
            self.labels.append(label)
            return
        draw = Random(derived_seed(self.seed, self.arrived))
        shrinks = self._class_to_shrink(label, draw)
        if shrinks is not None:
            index = draw.choice([i for i, other in enumerate(self.labels) if other == shrinks])
            self.images[index], self.labels[index] = image.clone(), label

    def _class_to_shrink(self, label: int, draw: Random) -> int | None:
        """The class that loses an image to the new one; None if the new one is not kept."""
        largest = self.largest_classes()
        if label not in largest:
            return draw.choice(sorted(largest))
        kept = self.labels.count(label) / self.seen[label]
        return label if draw.random() < kept else None

    def fill_(self, image: Tensor) -> None:
        super().fill_(image)
        self.seen = {0: self.capacity}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"seen": dict(self.seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.seen = dict(state["seen"])


class CstuMemory(ImageMemory):
    """Category-balanced sampling with timeliness and uncertainty: old and uncertain images leave first."""

    def __init__(self, capacity: int, classes: int) -> None:
        super().__init__(capacity)
        self.classes = classes
        self.entropies: list[float] = []
        self.ages: list[int] = []  # images that were offered since

    def offer_(self, image: Tensor, label: int, entropy: float) -> None:
        """Keep the image if its class or the memory has room, or if a worse one leaves for it."""
        self.arrived += 1
        below_quota = self.labels.count(label) < self.capacity / self.classes
        if below_quota and len(self) < self.capacity:
            self._append_(image, label, entropy)
        else:
            rivals = self.largest_classes() if below_quota else {label}
            worst = max((i for i, c in enumerate(self.labels) if c in rivals), key=self.score)
            if self.score(worst) > self._score(0, entropy):
                self._remove_(worst)
                self._append_(image, label, entropy)
        self.ages = [age + 1 for age in self.ages]

    def score(self, index: int) -> float:
        """How much an image deserves to leave."""
        return self._score(self.ages[index], self.entropies[index])

    def _score(self, age: int, entropy: float) -> float:
        return 1 / (1 + math.exp(-age / self.capacity)) + entropy / math.log(self.classes)

    def _append_(self, image: Tensor, label: int, entropy: float) -> None:
        self.images.append(image.clone())
        self.labels.append(label)
        self.entropies.append(entropy)
        self.ages.append(0)

    def _remove_(self, index: int) -> None:
        for column in (self.images, self.labels, self.entropies, self.ages):
            del column[index]

    def fill_(self, image: Tensor) -> None:
        super().fill_(image)
        self.entropies, self.ages = [0.0] * self.capacity, [1] * self.capacity

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"entropies": list(self.entropies), "ages": list(self.ages)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.entropies, self.ages = list(state["entropies"]), list(state["ages"])
