"""PEA: progressive alignment of the outputs of all blocks with those of the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from tta_bench.api import (
    CountOrZero,
    Fraction,
    Interval,
    Log,
    Method,
    Model,
    NonNegative,
    Source,
    Target,
    Uniform,
    spaces,
)
from tta_bench_methods._shared.augment import crop, warp
from tta_bench_methods._shared.gradient import entropy
from tta_bench_methods._shared.variant import VariantName
from tta_bench_methods.pea.whitening import Gaussian, GaussianSums, aligned, gaussian_of

LEAST_WEIGHT = 1e-3  # blocks of less weight stay as they are
NOT_FINITE = "the statistics of a block, or logits, were not finite"


@dataclass(frozen=True)
class BlockStatistics:
    """What a block's outputs have on the source: mean, variance and the root of the covariance."""

    mean: Tensor
    variance: Tensor
    root: Tensor

    def distance(self, rows: Tensor) -> Tensor:
        """‖μ_s − μ_b‖ + ‖σ²_s − σ²_b‖ of a batch."""
        variance, mean = torch.var_mean(rows, 0)
        return (self.mean - mean).norm() + (self.variance - variance).norm()


@dataclass(frozen=True)
class Running:
    """The stream's statistics behind one block, and the running size s of their changes."""

    gaussian: Gaussian
    drift: float | None = None


@dataclass
class Pea(Method):
    """Whiten each block's output by the stream's statistics, colour it by the source's, and mix it with the
    original output by how far the block is from the source, relative to the other blocks.

    corrected: blocks are weighted by statistics of all tokens, as those of the source are.
    released: of the stream's class tokens only; and the second batch always replaces the statistics of
    the first, as the running size of changes starts at zero.
    """

    variant: VariantName = "corrected"  # follow the paper, or the authors' code where it differs
    views: Annotated[int, Interval(ge=1, le=4)] = 1  # 3: the published PEA+Aug
    momentum: Fraction = 0.02  # weight of the new batch in the statistics
    running_rate: Fraction = 0.2  # α: weight of the new value in running means of change and entropy
    drift_limit: NonNegative = 4.0  # γ: a change of this many times the usual one replaces the statistics
    entropy_rise: NonNegative = 1.0  # θ: after such a rise of the mean entropy, the statistics start anew
    group: CountOrZero = 0  # channels that are whitened together; 0: all of a block

    family = "forward-only"
    summary = "block outputs aligned with the source's mean and covariance"
    search_space = spaces(momentum=Log(0.005, 0.5), drift_limit=Uniform(1.0, 8.0), entropy_rise=Log(0.1, 2.0))
    forwards, passes_shown = 2, "2·views/0"
    needs = "clean images"
    min_batch_reason = "one class token has no variance"

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return {"drift_limit": 2.5, "group": 32} if target.family == "resnet" else {}

    def passes(self) -> tuple[int, int]:
        return 2 * self.views, 0

    def unsupported(self, model: Model) -> str | None:
        if self.variant == "released" and model.family not in ("vit", "resnet"):
            return (
                f"the released code reads the first token as class token, and {model.name} has it elsewhere"
            )
        self._limit_batches_(model)  # before `refuses_batch` is asked
        return super().unsupported(model)

    def _limit_batches_(self, model: Model) -> None:
        """Set the smallest batch: the released code compares class tokens, of which each view has one."""
        self.reads_class_token = self.variant == "released" and model.tokens
        self.min_batch_size = 2 if self.reads_class_token and self.views == 1 else 1

    @torch.no_grad()
    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self._limit_batches_(model)
        sums = [GaussianSums(self.group) for _ in model.blocks]
        for x in source.batches():
            for block, hidden in zip(sums, block_outputs(model, x), strict=True):
                block.add_(rows_of(hidden))
        gaussians = [block.gaussian(model.mean.dtype) for block in sums]
        self.sources = [BlockStatistics(g.mean, g.variance, g.root(0.5)) for g in gaussians]
        self.reset()

    def reset(self) -> None:
        self.stream: list[Running | None] = [None] * len(self.sources)
        self.mean_entropy: float | None = None
        self.restarts = 0

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        views = torch.cat([view(x, i) for i in range(self.views)])
        unaligned, distances = self._compare(views)
        if not distances.isfinite().all():
            alone = len(x) < self.min_batch_size
            self.skip(f"a batch of one image: {self.min_batch_reason}" if alone else NOT_FINITE)
            return self._average(unaligned)
        found = self._align(views, relative(distances))
        if found is None:
            self.skip(NOT_FINITE)
            return self._average(unaligned)
        logits, self.stream = found
        output = self._average(logits)
        self._watch(float(entropy(output).mean()))
        return output

    def _average(self, logits: Tensor) -> Tensor:
        """Mean logits of the views of each image."""
        return logits.unflatten(0, (self.views, -1)).mean(0)

    def _compare(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of an ordinary pass, and the distance of every block's output from the source."""
        distances = []
        for source, hidden in zip(self.sources, block_outputs(self.model, x), strict=True):
            distances.append(source.distance(hidden[:, 0] if self.reads_class_token else rows_of(hidden)))
        return self.model.head(self.model.finish(hidden)), torch.stack(distances)

    def _align(self, x: Tensor, weights: list[float]) -> tuple[Tensor, list[Running | None]] | None:
        """Logits of a pass with aligned blocks, and the new statistics; None if any are not finite."""
        hidden, stream = self.model.enter(self.model.stem(x)), list(self.stream)
        for i, (block, source) in enumerate(zip(self.model.blocks, self.sources, strict=True)):
            hidden = block(hidden)
            if weights[i] < LEAST_WEIGHT:
                continue
            rows = rows_of(hidden)
            batch = gaussian_of(rows, self.group)
            if not batch.finite():
                return None
            running = stream[i] = self._updated(stream[i], batch)
            moved = aligned(rows, running.gaussian, source.mean, source.root, weights[i])
            hidden = with_rows(hidden, moved)
        logits = self.model.head(self.model.finish(hidden))
        return (logits, stream) if logits.isfinite().all() else None

    def _updated(self, old: Running | None, batch: Gaussian) -> Running:
        """The statistics with a batch taken in, or those of the batch after a large change."""
        if old is None:
            return Running(batch, 0.0 if self.variant == "released" else None)
        change = float((batch.mean - old.gaussian.mean).abs().mean())
        usual = change if old.drift is None else old.drift + self.running_rate * (change - old.drift)
        replaced = change > self.drift_limit * usual
        return Running(batch if replaced else old.gaussian.towards(batch, self.momentum), usual)

    def _watch(self, h: float) -> None:
        """Forget the stream's statistics if the entropy of the predictions rises."""
        usual = h if self.mean_entropy is None else self.mean_entropy
        if h > usual + self.entropy_rise:
            self.stream = [None] * len(self.sources)
            self.restarts += 1
        self.mean_entropy = usual + self.running_rate * (h - usual)

    def counters(self) -> dict[str, int]:
        return {"restarts": self.restarts}

    def state_dict(self) -> dict[str, Any]:
        rows = [None if s is None else (s.gaussian.mean, s.gaussian.covariance, s.drift) for s in self.stream]
        return {"stream": rows, "mean_entropy": self.mean_entropy, "restarts": self.restarts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        rows = state["stream"]
        self.stream = [None if r is None else Running(Gaussian(r[0], r[1]), r[2]) for r in rows]
        self.mean_entropy, self.restarts = state["mean_entropy"], state["restarts"]


def block_outputs(model: Model, x: Tensor) -> Iterator[Tensor]:
    """Yield the output of every block of an ordinary pass."""
    hidden = model.enter(model.stem(x))
    for block in model.blocks:
        hidden = block(hidden)
        yield hidden


def rows_of(hidden: Tensor) -> Tensor:
    """All tokens or positions as rows [n, channels]."""
    return hidden.flatten(0, 1) if hidden.dim() == 3 else hidden.permute(0, 2, 3, 1).flatten(0, 2)


def with_rows(hidden: Tensor, rows: Tensor) -> Tensor:
    """A hidden state of this shape with other rows."""
    if hidden.dim() == 3:
        return rows.view_as(hidden)
    batch, _, height, width = hidden.shape
    return rows.unflatten(0, (batch, height, width)).permute(0, 3, 1, 2)


def relative(distances: Tensor) -> list[float]:
    """Distances scaled to 0 … 1 over the blocks; all 0 if they are equal."""
    low, high = distances.min(), distances.max()
    scaled = (distances - low) / (high - low) if bool(high > low) else torch.zeros_like(distances)
    return [float(weight) for weight in scaled]


def view(x: Tensor, index: int) -> Tensor:
    """The image, its centre enlarged, its mirror image, or both."""
    if index == 0:
        return x
    side, mirrored = (0.9 if index in (1, 3) else 1.0), index >= 2
    margin = (1 - side) / 2
    return warp(x, [crop(margin, margin, side, side, mirrored)], padding="border")
