"""CMA-ES by pycma, with its own random generator and a state that can be saved.

pycma draws from NumPy's global generator and can only be pickled. Here it has a generator of its own,
and the state that later points depend on is saved as tensors and numbers. Arrays keep their memory
layout, as BLAS sums a transposed matrix in another order.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

with warnings.catch_warnings():  # it warns if matplotlib, which only its plots need, is missing
    warnings.simplefilter("ignore")
    from cma import CMAEvolutionStrategy
    from cma.sigma_adaptation import CMAAdaptSigmaCSA
    from cma.utilities.utils import ElapsedWCTime

Points = list[np.ndarray]
ARRAYS = {"C", "B", "D"}  # covariance, its eigenvectors and the roots of its eigenvalues
COUNTERS = {"count_tell", "count_eigen", "last_update"}  # decide when the covariance is decomposed again


class CmaSearch:
    """Minimises over R^n by `ask` and `tell`, with cumulative step-size adaptation."""

    def __init__(self, mean: np.ndarray, sigma: float, population: int, seed: int) -> None:
        self.random = np.random.RandomState(seed)
        options = {
            "popsize": population,
            # From 4.5.0 on pycma would switch to TPA in 300 dimensions, and fail with two points.
            "AdaptSigma": CMAAdaptSigmaCSA,
            "randn": self.random.randn,
            "seed": np.nan,  # do not touch NumPy's global generator
            "conditioncov_alleviate": False,  # would hide state in a change of coordinates
            "verbose": -10,
        }
        self.strategy = CMAEvolutionStrategy(mean, sigma, options)

    @property
    def mean(self) -> np.ndarray:
        """A copy of the mean of the distribution."""
        return np.array(self.strategy.mean, dtype=float, copy=True)

    def ask(self) -> Points:
        """New points; some calls first decompose the covariance, which takes most of the time."""
        return self.strategy.ask()

    def tell(self, points: Points, fitness: list[float]) -> None:
        """Learn from points; those that `ask` did not return are clipped in length."""
        self.strategy.tell(points, fitness)

    def withdraw(self) -> None:
        """Discard the points of the last `ask`, which have no fitness and will not be told."""
        self.strategy.sent_solutions.clear()
        self.strategy._injected_solutions_archive.clear()
        self.strategy.number_of_solutions_asked = 0

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that later points depend on."""
        strategy, sampler = self.strategy, self.strategy.sm
        random = self.random.get_state(legacy=False)
        return {
            "mean": _tensor(strategy.mean),
            "sigma": float(strategy.sigma),
            "iterations": int(strategy.countiter),
            "path_c": _tensor(strategy.pc),
            "path_sigma": _tensor(strategy.adapt_sigma.ps),
            # Populations under six mirror their worst points, which are then the next ones asked.
            "mirrors": [_tensor(direction) for direction in strategy.pop_injection_directions],
            "mirrored": [int(i) for i in getattr(strategy, "_indices_of_selective_mirrors", [])],
            "arrays": {name: _tensor(getattr(sampler, name)) for name in sorted(ARRAYS)},
            "counters": {name: int(getattr(sampler, name)) for name in sorted(COUNTERS)},
            "random_key": _tensor(random["state"]["key"].astype(np.int64)),
            "random": (int(random["state"]["pos"]), int(random["has_gauss"]), float(random["gauss"])),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of `state_dict`, which is not changed."""
        strategy, sampler = self.strategy, self.strategy.sm
        strategy.mean = _array(state["mean"])
        strategy.mean_old = strategy.mean  # `tell` wants one, and overwrites it before use
        strategy.sigma, strategy.countiter = state["sigma"], state["iterations"]
        strategy.pc, strategy.adapt_sigma.ps = _array(state["path_c"]), _array(state["path_sigma"])
        strategy.pop_injection_directions = [_array(direction) for direction in state["mirrors"]]
        strategy._indices_of_selective_mirrors = list(state["mirrored"])
        for name in ARRAYS:
            setattr(sampler, name, _array(state["arrays"][name]))
        for name in COUNTERS:
            setattr(sampler, name, state["counters"][name])
        strategy._updateBDfromSM(sampler)  # it keeps references of its own
        strategy.timer = ElapsedWCTime()  # `ask` starts one only before the first iteration
        key = _array(state["random_key"]).astype(np.uint32)
        self.random.set_state(("MT19937", key, *state["random"]))


def _tensor(array: np.ndarray) -> Tensor:
    """A copy with the same memory layout."""
    return torch.from_numpy(np.array(array, copy=True, order="K"))


def _array(tensor: Tensor) -> np.ndarray:
    """A copy with the same memory layout."""
    return np.array(tensor.cpu().numpy(), copy=True, order="K")
