"""FOZO: zeroth-order steps on input prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tta_bench.api import Count, Log, Method, Model, NonNegative, Positive, Seed, Source, spaces
from tta_bench_methods._shared.alignment import (
    SPREAD_OF_ONE,
    ActivationShift,
    Candidate,
    SourceStatistics,
    feature_mean,
    objective,
    shifted,
    sortable,
)
from tta_bench_methods._shared.variant import VariantName

STEP_LIMITS = (0.2, 0.5)  # of ε, the size of perturbations
RATE_LIMITS = (0.1, 3.0)  # of η, the learning rate
STEP_DECAY, RATE_DECAY, RATE_GROWTH = 0.9, 0.7, 0.1
RISE = 1.05  # a loss of so many times its running mean is a new domain


@dataclass
class Fozo(Method):
    """Perturb the prompts in random directions and back, predict with the better side, and take a step by
    the difference of losses. Perturbations and steps shrink while the loss falls, and are large again
    when it rises.

    released: the running mean of features, by which they are shifted, adds the means of both sides.
    corrected: it averages them.
    """

    variant: VariantName = "corrected"  # follow the paper, or the authors' code where it differs
    lr: NonNegative = 0.08  # η before the first batch
    step_size: Positive = 0.5  # ε before the first batch
    pairs: Count = 1  # n: random directions for each batch
    prompts: Count = 3  # tokens that are added to the input
    lam: NonNegative = 0.4  # λ, weight of the feature alignment
    shift: bool = True  # activation shifting; false: predict from the features as they are
    seed: Seed = 2020  # of the random draws; filled with the seed of the cell

    family = "forward-only"
    summary = "zeroth-order steps on prompts"
    search_space = spaces(lr=Log(0.01, 1.0), step_size=Log(0.2, 0.5), lam=Log(0.04, 4.0))
    forwards, passes_shown = 2, "2·pairs/0"
    needs = "tokens, clean images"
    min_batch_size = 2
    min_batch_reason = SPREAD_OF_ONE

    def passes(self) -> tuple[int, int]:
        return 2 * self.pairs, 0

    def unsupported(self, model: Model) -> str | None:
        if not model.tokens:
            return f"inserts prompts between tokens, and {model.name} has none"
        return super().unsupported(model)

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self.source_statistics = SourceStatistics(*source.layer_statistics(model))
        self.reset()

    def reset(self) -> None:
        self.rng = torch.Generator().manual_seed(self.seed)
        self.prompt = self.model.new_prompt(self.prompts, self.rng).to(self.model.device)
        self.history = ActivationShift(self.source_statistics.means[-1])
        self.epsilon, self.eta = self.step_size, self.lr
        self.mean_loss: float | None = None

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        offset = self.history.offset() if self.shift else None
        if len(x) < self.min_batch_size:
            self.skip(f"a batch of one image: {SPREAD_OF_ONE}")
            return self._try(x, self.prompt, offset).logits
        trials, gradient = [], torch.zeros_like(self.prompt)
        for _ in range(self.pairs):
            z = torch.randn(self.prompt.shape, generator=self.rng).to(self.prompt)
            pair = [self._try(x, self.prompt + sign * self.epsilon * z, offset) for sign in (1, -1)]
            gradient += (pair[0].fitness - pair[1].fitness) / (2 * self.epsilon) * z / self.pairs
            trials += pair
        if all(math.isfinite(trial.fitness) for trial in trials):
            self._learn_(trials, gradient)
        else:
            self.skip("the loss of a prompt was not finite")
        return min(trials, key=lambda trial: sortable(trial.fitness)).logits

    def _try(self, x: Tensor, prompt: Tensor, offset: Tensor | None) -> Candidate:
        """Loss and prediction under a prompt; unlike FOA's, the loss has the entropy of shifted logits."""
        layers, z = self.model.continue_from(self.model.enter(self.model.stem(x, prompt)))
        logits = self.model.head(shifted(z, offset))
        gaps = self.source_statistics.gaps(layers)
        return Candidate(objective(logits, gaps, self.lam, "sum").item(), logits, feature_mean(z))

    def _learn_(self, trials: list[Candidate], gradient: Tensor) -> None:
        """Adjust ε and η by the smaller loss, take the step with the new η, update the history."""
        self._adjust_(min(trial.fitness for trial in trials))
        self.prompt = self.prompt - self.eta * gradient
        means = torch.stack([trial.feature_mean for trial in trials]).mean(0)
        self.history.update_(2 * means if self.variant == "released" else means)

    def _adjust_(self, loss: float) -> None:
        """The schedule of ε and η."""
        self.mean_loss = loss if self.mean_loss is None else 0.9 * self.mean_loss + 0.1 * loss
        if loss > RISE * self.mean_loss:
            epsilon, eta = STEP_LIMITS[1], RATE_LIMITS[0]
        else:
            epsilon, eta = STEP_DECAY * self.epsilon, RATE_DECAY * self.eta + RATE_GROWTH
        self.epsilon = min(max(epsilon, STEP_LIMITS[0]), STEP_LIMITS[1])
        self.eta = min(max(eta, RATE_LIMITS[0]), RATE_LIMITS[1])

    def state_dict(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "mean": self.history.mean,
            "schedule": (self.epsilon, self.eta, self.mean_loss),
            "rng": self.rng.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.prompt, self.history.mean = state["prompt"], state["mean"]
        self.epsilon, self.eta, self.mean_loss = state["schedule"]
        self.rng.set_state(state["rng"])
