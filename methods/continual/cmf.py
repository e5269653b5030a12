"""CMF: ROID with a Kalman filter between the source and the adapted parameters (Lee & Chang, 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tta_bench.api import Choice, Fraction, Log, Model, NonNegative, Source, spaces
from tta_bench_methods._shared.teacher import follow_
from tta_bench_methods.continual.roid import Roid

VIT_B_NORMS = 38_400  # adapted parameters for which the noise is given
LEAST_GAIN, NO_UPDATE = 0.89, 0.9999


@dataclass
class Cmf(Roid):
    """ROID; parameters are averaged with a filtered mean h, not with the source."""

    noise: NonNegative = 0.005  # q for 38 400 adapted parameters; 0: ROID
    source_pull: Fraction = 0.99  # α: weight of h, of which the source has the rest

    summary = "ROID with filtered parameters"
    search_space = spaces(lr=Log(1e-5, 1e-2), source_momentum=Choice(0.9, 0.99, 0.999), noise=Log(1e-4, 0.1))
    remembers = (*Roid.remembers, "variance")

    def setup(self, model: Model, source: Source) -> None:
        self.variance = 0.0  # P
        self.hidden: list[Tensor] = []  # h, made from the parameters below
        super().setup(model, source)
        self.source_parameters = [p.clone() for p in self.tensors_trained()]
        self.hidden = [p.clone() for p in self.source_parameters]
        self.process_noise = self.noise * sum(p.numel() for p in self.parameters) / VIT_B_NORMS
        self.initial = self.snapshot()

    def tensors(self) -> list[Tensor]:
        return super().tensors() + self.hidden

    @torch.no_grad()
    def return_(self) -> None:
        """Predict h and P, update both by θ, and average θ with h."""
        follow_(self.hidden, self.source_parameters, 1 - self.source_pull)
        self.variance = self.source_pull**2 * self.variance + self.process_noise
        observed = 1 - self.process_noise  # r
        kept = max(observed / (self.variance + observed), LEAST_GAIN)
        kept = 1.0 if kept >= NO_UPDATE else kept
        self.variance *= kept
        follow_(self.hidden, self.tensors_trained(), 1 - kept)
        follow_(self.tensors_trained(), self.hidden, 1 - self.source_momentum)
