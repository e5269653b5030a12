"""FOA: prompts found by CMA-ES, and activation shifting (Niu et al., ICML 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from tta_bench.api import (
    CountOrZero,
    Ge,
    Log,
    Method,
    Model,
    NonNegative,
    Positive,
    Seed,
    Source,
    Target,
    spaces,
)
from tta_bench_methods._shared.alignment import (
    SPREAD_OF_ONE,
    ActivationShift,
    Candidate,
    SourceStatistics,
    feature_mean,
    objective,
    shift_target,
    shifted,
    sortable,
)
from tta_bench_methods._shared.cma_search import CmaSearch
from tta_bench_methods._shared.variant import VariantName


@dataclass
class Foa(Method):
    """Try K prompts on every batch, predict with the best, and let CMA-ES learn from all of them.

    K = 2 tries a population of two; any other K tries K − 1 points and the best prompt so far.
    A stream of single images is refused, as one image has no standard deviation; a single image at the
    end of a domain is predicted with the best prompt, and nothing is learnt from it.

    `interval` I > 0 is FOA-I: it learns from at least I images at a time (the paper's V2). With
    `predictions: immediate`, images are predicted on arrival with the best prompt so far, and collected.
    With `deferred`, it is FOA with a batch size of I: the harness joins smaller batches, and a larger one
    is split into parts of I, of which the last may be smaller.

    `variant: released` differs on feature maps only: the target of the shift is the last number of the
    source mean, and the source statistics are taken with the initial random prompt in place.
    """

    variant: VariantName = "corrected"  # follow the paper, or the authors' code where it differs
    k: Annotated[int, Ge(2)] = 28  # forward passes per batch; an evolution strategy compares points
    prompts: CountOrZero = 3  # tokens; feature maps get one 7×7 kernel over the pixels. 0: shifting alone
    sigma: Positive = 1.0  # initial step size of the search
    lam: NonNegative = 0.4  # λ, weight of the feature alignment
    fitness: Literal["sum", "mean"] = "sum"  # of images and channels; mean: as released for ResNets
    shift: bool = True  # activation shifting; false: predict from the features as they are
    # I: images between two steps of the search; 0: one step for each batch.
    interval: Literal[0] | Annotated[int, Ge(2)] = 0
    # With an interval: predict each image as it arrives, or when I have arrived.
    predictions: Literal["immediate", "deferred"] = "immediate"
    seed: Seed = 2020  # of the random draws; filled with the seed of the cell

    version = "3"
    family = "forward-only"
    summary = "prompts by evolution strategy, features moved back to the source mean"
    needs = "prompts, clean images"
    min_batch_size = 2
    min_batch_reason = SPREAD_OF_ONE
    search_space = spaces(sigma=Log(0.03, 3.0), lam=Log(0.04, 4.0))

    def __post_init__(self) -> None:
        self.predicts_on_arrival = self.interval > 0 and self.predictions == "immediate"
        if self.predicts_on_arrival:
            self.min_batch_size = 1
        else:
            self.gathers = self.interval

    def passes(self) -> tuple[int, int]:
        return self.k + self.predicts_on_arrival, 0

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return {"fitness": "mean"} if target.family == "resnet" else {}

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        model.use_batch_statistics()
        released = self.variant == "released" and not model.tokens
        prompt = self._initial_prompt().to(model.device) if released else None
        self.source_statistics = SourceStatistics(*source.layer_statistics(model, prompt))
        self.target = shift_target(self.source_statistics, broadcast_scalar=released)
        self.reset()

    def reset(self) -> None:
        """Start over from the same random prompt; the search starts at zero, on pixels at that prompt."""
        prompt = self._initial_prompt()
        self.prompt_shape = prompt.shape
        self.incumbent = prompt.double().flatten().cpu().numpy()
        self.history = ActivationShift(self.target)
        self.waiting: list[Tensor] = []
        self.search: CmaSearch | None = None
        if self.incumbent.size:
            start = np.zeros_like(self.incumbent) if self.model.tokens else self.incumbent
            self.search = CmaSearch(start, self.sigma, max(2, self.k - 1), self.seed)

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        if self.predicts_on_arrival:
            return self._predict_then_collect(x)
        too_large = 0 < self.gathers < len(x)
        if too_large:
            return torch.cat([self.step(part) for part in x.split(self.gathers)])
        if len(x) < self.min_batch_size:
            self.skip(f"a batch of one image: {SPREAD_OF_ONE}")
            return self._predict(x)
        return self._generation(x)

    def _generation(self, x: Tensor) -> Tensor:
        """One iteration of the search over a batch; the logits of its best prompt."""
        offset = self._offset()
        points = self._points()
        candidates = [self._try(x, point, offset) for point in points]
        best = min(range(len(candidates)), key=lambda i: sortable(candidates[i].fitness))
        if all(math.isfinite(candidate.fitness) for candidate in candidates):
            self._learn_(points, candidates, best)
        else:
            self.skip("the fitness of a prompt was not finite")
            if self.search is not None:
                self.search.withdraw()
        return candidates[best].logits

    def _learn_(self, points: list[np.ndarray], candidates: list[Candidate], best: int) -> None:
        """Keep the best prompt; update the search and the history from all prompts."""
        self.incumbent = points[best].copy()
        if self.search is not None:
            self.search.tell(points, [candidate.fitness for candidate in candidates])
        self.history.update_(torch.stack([candidate.feature_mean for candidate in candidates]).mean(0))

    def _points(self) -> list[np.ndarray]:
        """The prompts to try on this batch; without prompts only the empty one."""
        incumbent = self.incumbent.copy()  # pycma clips the points it is told in place
        if self.search is None:
            return [incumbent]
        points = self.search.ask()
        return points if self.k == 2 else [*points, incumbent]

    def _try(self, x: Tensor, point: np.ndarray, offset: Tensor | None) -> Candidate:
        """Fitness from the unshifted logits, prediction from the shifted ones."""
        layers, z = self._pass(x, point)
        logits = self.model.head(z)
        gaps = self.source_statistics.gaps(layers)
        fitness = objective(logits, gaps, self.lam, self.fitness).item()
        output = logits if offset is None else self.model.head(shifted(z, offset))
        return Candidate(fitness, output, feature_mean(z))

    def _pass(self, x: Tensor, point: np.ndarray) -> tuple[list[Tensor], Tensor]:
        """Layer features and z under a prompt."""
        prompt = torch.from_numpy(point).to(x).view(self.prompt_shape)
        return self.model.continue_from(self.model.enter(self.model.stem(x, prompt)))

    def _predict(self, x: Tensor) -> Tensor:
        """Logits under the best prompt so far, shifted; nothing is learnt."""
        _, z = self._pass(x, self.incumbent)
        return self.model.head(shifted(z, self._offset()))

    def _offset(self) -> Tensor | None:
        """What features are moved by; None without shifting or history."""
        return self.history.offset() if self.shift else None

    def _predict_then_collect(self, x: Tensor) -> Tensor:
        """Predict at once; learn when enough images are collected."""
        output = self._predict(x)
        self.waiting = [*self.waiting, x]
        images = torch.cat(self.waiting)
        if len(images) >= self.interval:
            self.waiting = []
            self._generation(images)
        return output

    def _initial_prompt(self) -> Tensor:
        rng = torch.Generator().manual_seed(self.seed)
        return self.model.new_prompt(self.prompts, rng)

    def state_dict(self) -> dict[str, Any]:
        return {
            "incumbent": torch.from_numpy(self.incumbent.copy()),
            "mean": self.history.mean,
            "waiting": self.waiting,
            "search": None if self.search is None else self.search.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.incumbent = state["incumbent"].cpu().numpy().copy()
        self.history.mean, self.waiting = state["mean"], list(state["waiting"])
        if self.search is not None:
            self.search.load_state_dict(state["search"])
