"""PACE: norm parameters in a random subspace, found by CMA-ES, with a stop and a bank of domains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
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
    shifted,
    sortable,
)
from tta_bench_methods._shared.cma_search import CmaSearch
from tta_bench_methods._shared.selection import FlatParameters, adapted_norms
from tta_bench_methods._shared.shift_detection import DomainMonitor, channel_statistics
from tta_bench_methods.pace.projection import Fastfood

DOMAIN_KEEP = 0.8  # weight of the old domain statistics
LARGEST_SUBSPACE = 2304  # of ViT-B; CMA-ES keeps its square
RECALLED = 4  # points of a new population that come from the bank


@dataclass
class Pace(Method):
    """Norm parameters θ = θ⁰ + A·v with a fixed random A; CMA-ES searches v and the best point predicts.

    When the mean of the search hardly moves, θ stays at θ⁰ + A·mean and a batch takes one pass. When the
    domain changes, that mean is stored in a bank and a new search begins, with the four best of the
    stored means and zero in its first population.
    """

    population: Annotated[int, Ge(2)] = 27  # new points for each batch; the best of the last one comes on top
    sigma: Positive = 0.05  # initial step size of the search
    subspace: CountOrZero = 0  # numbers in v; 0: three for each feature channel, at most 2304
    lam: NonNegative = 0.4  # λ, weight of the feature alignment
    fitness: Literal["sum", "mean"] = "sum"  # how entropies of images and gaps of channels are combined
    stop_below: NonNegative = 0.045  # stop when the mean moves by less than this share; 0: never
    tau: Positive | None = 0.03  # threshold of the shift detection; None: no detection
    bank_size: CountOrZero = 30  # means of earlier searches that are kept; 0: no bank
    shift: bool = True  # activation shifting; false: predict from the features as they are
    seed: Seed = 2020  # of the random draws; filled with the seed of the cell

    family = "forward-only"
    summary = "norm layers in a random subspace by evolution strategy, with stops"
    search_space = spaces(sigma=Log(0.005, 0.5), lam=Log(0.04, 4.0), stop_below=Log(0.005, 0.2))
    forwards, passes_shown = 28, "1 to 28 + bank/0"
    needs = "norm layers, clean images"
    min_batch_size = 2
    min_batch_reason = SPREAD_OF_ONE

    def passes(self) -> tuple[int, int]:
        return self.population + 1, 0

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return {"fitness": "mean"} if target.family == "resnet" else {}

    def unsupported(self, model: Model) -> str | None:
        if not adapted_norms(model):
            return f"needs normalisation layers in the middle blocks, and {model.name} has none"
        return super().unsupported(model)

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        model.use_batch_statistics()
        self.parameters = FlatParameters(adapted_norms(model))
        self.source_statistics = SourceStatistics(*source.layer_statistics(model))
        self.size = self.subspace or min(3 * model.head_weight.shape[1], LARGEST_SUBSPACE)
        rng = torch.Generator().manual_seed(self.seed)
        self.project = Fastfood(self.size, len(self.parameters.source), rng, model.device)
        self.reset()

    def reset(self) -> None:
        self.bank = torch.zeros(0, self.size, dtype=torch.float64, device=self.model.device)
        self.monitor = DomainMonitor(self.tau or math.inf, DOMAIN_KEEP, None)
        self.shifts = 0
        self._start_()
        self.recalls = False

    def _start_(self) -> None:
        """A new search around the source."""
        self.search = CmaSearch(np.zeros(self.size), self.sigma, self.population, self.seed)
        self.incumbent = np.zeros(self.size)
        self.history = ActivationShift(self.source_statistics.means[-1])
        self.stopped = False
        self.recalls = self.bank_size > 0  # the next population begins with points of the bank

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        offset = self.history.offset() if self.shift else None
        if len(x) < self.min_batch_size:
            self.skip(f"a batch of one image: {SPREAD_OF_ONE}")
            return self._try(x, self._resting_point(), offset).logits
        rests = self.stopped
        best, learnt = self._rest(x, offset) if rests else self._generation(x, offset)
        if learnt and self.tau is not None:
            self._watch(x, rests)
        return best.logits

    def _rest(self, x: Tensor, offset: Tensor | None) -> tuple[Candidate, bool]:
        """One pass after the search has stopped, and whether it was finite; only the history moves on."""
        only = self._try(x, self._resting_point(), offset)
        finite = self.history.update_(only.feature_mean)
        if not finite:
            self.skip("the features of a batch were not finite")
        return only, finite

    def _resting_point(self) -> np.ndarray:
        """The v that predicts without a search."""
        return self.search.mean if self.stopped else self.incumbent

    def _generation(self, x: Tensor, offset: Tensor | None) -> tuple[Candidate, bool]:
        """One iteration of the search: its best candidate, and whether all were finite."""
        points = self._points(x)
        candidates = [self._try(x, point, offset) for point in points]
        best = min(range(len(candidates)), key=lambda i: sortable(candidates[i].fitness))
        learnt = all(math.isfinite(candidate.fitness) for candidate in candidates)
        if learnt:
            self._learn_(points, candidates, best)
        else:
            self.skip("the fitness of a candidate was not finite")
            self.search.withdraw()
        return candidates[best], learnt

    def _points(self, x: Tensor) -> list[np.ndarray]:
        """The v to try: a population, and the best of the last batch or, after a shift, the bank's best."""
        population = self.search.ask()
        if not self.recalls:
            return [*population, self.incumbent.copy()]  # pycma clips points it is told in place
        known = torch.cat([self.bank, self.bank.new_zeros(1, self.size)]).cpu().numpy()
        scores = [sortable(self._try(x, point, None).fitness) for point in known]
        best = [known[i].copy() for i in np.argsort(scores, kind="stable")[:RECALLED]]
        return [*best, *population[len(best) :]]

    def _try(self, x: Tensor, point: np.ndarray, offset: Tensor | None) -> Candidate:
        """Fitness from the unshifted logits, prediction from the shifted ones."""
        v = torch.from_numpy(point).to(self.parameters.source)
        self.parameters.write_(self.project(v))
        layers, z = self.model.continue_from(self.model.enter(self.model.stem(x)))
        logits = self.model.head(z)
        gaps = self.source_statistics.gaps(layers)
        fitness = objective(logits, gaps, self.lam, self.fitness).item()
        output = logits if offset is None else self.model.head(shifted(z, offset))
        return Candidate(fitness, output, feature_mean(z))

    def _learn_(self, points: list[np.ndarray], candidates: list[Candidate], best: int) -> None:
        """Update search and history; stop if the mean of the search has hardly moved."""
        before = self.search.mean
        self.incumbent = points[best].copy()
        self.search.tell(points, [candidate.fitness for candidate in candidates])
        self.history.update_(torch.stack([candidate.feature_mean for candidate in candidates]).mean(0))
        moved = float(np.linalg.norm(self.search.mean - before))
        self.stopped = moved < self.stop_below * float(np.linalg.norm(before))
        self.recalls = False

    def _watch(self, x: Tensor, rests: bool) -> None:
        """Store the mean and start anew if this batch belongs to a new domain."""
        known = self.monitor.domain
        if self.monitor.changed(channel_statistics(self.model.stem_samples(self.model.stem(x))), len(x)):
            self.shifts += 1
            self._store_()
            self._start_()
        elif rests and known is not None:
            self.monitor.domain = known  # statistics rest once the parameters do

    def _store_(self) -> None:
        """Put the mean into the bank; over capacity, the entry most similar to the others leaves."""
        if self.bank_size == 0:
            return
        self.bank = torch.cat([self.bank, torch.from_numpy(self.search.mean[None]).to(self.bank)])
        if len(self.bank) > self.bank_size:
            redundant = most_similar(self.bank)
            self.bank = torch.cat([self.bank[:redundant], self.bank[redundant + 1 :]])

    def counters(self) -> dict[str, int]:
        return {"detected_shifts": self.shifts, "stored_vectors": len(self.bank)}

    def fill(self) -> None:
        """Fill the bank with zeros, for byte counts."""
        self.bank = self.bank.new_zeros(self.bank_size, self.size)

    def state_dict(self) -> dict[str, Any]:
        return {
            "search": self.search.state_dict(),
            "incumbent": torch.from_numpy(self.incumbent.copy()),
            "bank": self.bank,  # replaced, never changed in place
            "mean": self.history.mean,
            "domain": self.monitor.domain,
            "min_batch": self.monitor.min_batch,
            "flags": (self.stopped, self.recalls),
            "shifts": self.shifts,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.search.load_state_dict(state["search"])
        self.incumbent = state["incumbent"].cpu().numpy().copy()
        self.bank = state["bank"]
        self.history.mean = state["mean"]
        self.monitor.domain, self.monitor.min_batch = state["domain"], state["min_batch"]
        self.stopped, self.recalls = state["flags"]
        self.shifts = state["shifts"]


def most_similar(rows: Tensor) -> int:
    """The index of the row with the largest mean cosine to the others."""
    unit = F.normalize(rows, dim=1)
    return int((unit @ unit.T).fill_diagonal_(0).sum(1).argmax())
