"""ZOA: continual zeroth-order adaptation of quantised networks (Deng et al., ACM MM 2025)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from tta_bench.api import (
    Count,
    CountOrZero,
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
from tta_bench_methods.alignment import (
    SPREAD_OF_ONE,
    ActivationShift,
    SourceStatistics,
    objective,
    shift_target,
    shifted,
)
from tta_bench_methods.zoa.bank import AlphaInit, Bank, BankOptions, Policy
from tta_bench_methods.zoa.estimator import AdamW, Distribution, draw, slope
from tta_bench_methods.zoa.presets import settings
from tta_bench_methods.zoa.selection import FlatParameters, adapted_norms
from tta_bench_methods.zoa.shift_detection import DomainMonitor, channel_statistics

DOMAIN_KEEP = 0.8  # weight of the old domain statistics
RELEASED_MIN_BATCH = 64


@dataclass(frozen=True)
class Prefix:
    """What 1 + q passes over a batch have in common: everything before the first adapted layer."""

    statistics: Tensor  # mean and variance of the stem's channels
    layers: list[Tensor]  # layer features that no adapted parameter touches
    hidden: list[Tensor]  # what the first adapted block reads: one, to be given away
    shared: bool

    def take(self) -> Tensor:
        """The hidden state; unless passes share it, it lives no longer than the taker needs it."""
        return self.hidden[0] if self.shared else self.hidden.pop()


@dataclass
class Zoa(Method):
    """Norm parameters θ = θ⁰ + Σ_j α_j Δ_j + ε, with ε and α learnt from 1 + q forward passes.

    Defaults are those of ViT-B W8A8. `released` differs from `corrected` in: a scalar shift target on
    feature maps; domain statistics updated in every pass, and on feature maps first by the source images;
    no detection in batches under 64; similarities that go stale when a vector is removed, and pairs of
    negative similarity ranked below what is no pair; Adam's state cleared every step; the old shift on
    the first batch of a new domain.
    """

    variant: Literal["corrected", "released"] = "corrected"
    lr: NonNegative = 5e-4
    weight_decay: NonNegative = 0.4
    c: Positive = 0.02  # size of the perturbation of ε, by which a difference of losses is divided
    q: Count = 1  # perturbations a batch
    distribution: Distribution = "rsu"
    lam: NonNegative = 30.0  # λ, weight of the feature alignment
    lr_alpha: NonNegative = 0.01
    weight_decay_alpha: NonNegative = 0.1
    c_alpha: Positive = 0.05
    temperature: Positive = 10.0
    alpha_init: AlphaInit = "derived"
    residual_limit: Positive = 0.01  # w_m
    bank_size: CountOrZero = 32  # N; 0: no bank, the paper's V1
    bank_policy: Policy = "similar"
    store: Literal["on_shift", "every"] = "on_shift"
    store_every: Count = 30  # batches
    tau: NonNegative = 0.1  # threshold of the shift detection
    # Smaller batches are not looked at for shifts. None: as the first batch; released: 64.
    min_batch: Count | None = None
    shift: bool = True  # activation shifting; false: predict from the features as they are
    share_prefix: bool = True  # compute once what passes have in common: same numbers, more memory
    seed: Seed = 2020

    version = "2"
    family = "forward-only"
    summary = "zeroth-order steps on norm layers, with a bank of domains"
    cost = "2/0"
    needs = "norm layers, clean images"
    min_batch_size = 2
    min_batch_reason = SPREAD_OF_ONE
    search_space = spaces(lr=Log(5e-5, 1e-2), c=Log(3e-3, 0.1), lam=Log(0.3, 100.0))

    def __post_init__(self) -> None:
        self.cost = f"{1 + self.q}/0"  # type: ignore[misc]

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return settings(target)

    def unsupported(self, model: Model) -> str | None:
        if not adapted_norms(model):
            return f"needs normalisation layers in the middle blocks, and {model.name} has none"
        return super().unsupported(model)

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        model.use_batch_statistics()
        norms = adapted_norms(model)
        self.start = norms[0].block
        self.parameters = FlatParameters(norms)
        self.source_statistics = SourceStatistics(*source.layer_statistics(model))
        released = self.variant == "released"
        self.source_domain = self._domain_of(source) if released and not model.tokens else None
        self.reset()

    @torch.no_grad()
    def _domain_of(self, source: Source) -> Tensor | None:
        """Domain statistics of clean images: released code lets them pass the shift detection."""
        monitor = self._monitor(DOMAIN_KEEP)
        for x in source.batches():
            monitor.changed(channel_statistics(self.model.stem_samples(self.model.stem(x))), len(x))
        return monitor.domain

    def _monitor(self, keep: float) -> DomainMonitor:
        default = RELEASED_MIN_BATCH if self.variant == "released" else None
        return DomainMonitor(self.tau, keep, self.min_batch or default)

    def reset(self) -> None:
        released = self.variant == "released"
        options = BankOptions(
            self.bank_size,
            self.bank_policy,
            self.alpha_init,
            self.temperature,
            self.residual_limit,
            released=released,
        )
        self.rng = torch.Generator().manual_seed(self.seed)
        self.bank = Bank(self.parameters.source, self.parameters.layer_sizes, options)
        self.residual = torch.zeros_like(self.parameters.source)  # ε
        self.adam = AdamW.fresh(self.bank.logits)
        self.monitor = self._monitor(DOMAIN_KEEP ** (1 + self.q if released else 1))
        self.monitor.domain = self.source_domain
        scalar = released and not self.model.tokens
        self.history = ActivationShift(shift_target(self.source_statistics, scalar))
        self.batches = self.shifts = 0
        self.parameters.write_(self.residual)

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        """Algorithm 1, one batch."""
        prefix = self._prefix(x)
        changed = self.monitor.changed(prefix.statistics, len(x))
        offset = self.history.offset() if self.shift else None
        self.shifts += changed
        if changed:
            self.history.mean = None
            offset = offset if self.variant == "released" else None
        if self.bank_size > 0 and self._store_is_due(changed):
            self.residual = self.bank.store_(self.residual, self.rng)
            self.adam = AdamW.fresh(self.bank.logits)
        loss, z = self._forward(prefix, self.residual, self.bank.logits)
        output = self.model.head(shifted(z, offset))
        self._learn_(x, prefix, loss)
        self.history.update_(z.mean(0))
        self.batches += 1
        return output

    def _prefix(self, x: Tensor) -> Prefix:
        """Stem and frozen blocks."""
        embedded = self.model.stem(x)
        statistics = channel_statistics(self.model.stem_samples(embedded))
        hidden, layers = self.model.enter(embedded), []
        del embedded  # often the largest of all tensors
        for index, block in enumerate(self.model.blocks[: self.start]):
            hidden = block(hidden)
            # The last of them is read through an adapted norm, so it is left to `_forward`.
            if index < self.start - 1:
                layers.append(self.model.probe(index, hidden))
        return Prefix(statistics, [z for z in layers if z is not None], [hidden], self.share_prefix)

    def _store_is_due(self, changed: bool) -> bool:
        if self.store == "every":
            return self.batches > 0 and self.batches % self.store_every == 0
        return changed

    def _forward(self, prefix: Prefix, residual: Tensor, logits: Tensor) -> tuple[float, Tensor]:
        """The loss (Eq. 6) and the features of one pass with the given ε and b."""
        self.parameters.write_(self.bank.combine(logits) + residual)
        border = self.model.probe(self.start - 1, prefix.hidden[0])
        layers, z = self.model.continue_from(prefix.take(), self.start)
        layers = [*prefix.layers, *([] if border is None else [border]), *layers]
        gaps = self.source_statistics.gaps(layers)
        return objective(self.model.head(z), gaps, self.lam, "mean").item(), z

    def _learn_(self, x: Tensor, prefix: Prefix, loss: float) -> None:
        """Estimate both gradients, then descend; leave all as it is if anything is not finite."""
        gradients = self._gradients(x, prefix, loss) if math.isfinite(loss) else None
        if gradients is None:
            self.skip(self._why_not(len(x)))
        else:
            self._descend_(*gradients)
        self.parameters.write_(self.bank.combine() + self.residual)

    def _why_not(self, images: int) -> str:
        if images < self.min_batch_size:
            return f"a batch of one image: {SPREAD_OF_ONE}"
        return "the loss or its estimated gradient was not finite"

    def _gradients(self, x: Tensor, prefix: Prefix, loss: float) -> tuple[Tensor, Tensor] | None:
        """ĝ(ε) and ĝ(b), averaged over q joint perturbations of both (Eq. 3 and 5)."""
        sums = [torch.zeros_like(self.residual), torch.zeros_like(self.bank.logits)]
        for _ in range(self.q):
            e, n = self._draw(len(self.residual)), self._draw(len(self.bank.logits))
            perturbed = self.residual + self.c * e, self.bank.logits + self.c_alpha * n
            rise = self._forward(prefix if prefix.shared else self._prefix(x), *perturbed)[0] - loss
            sums[0] += slope(rise, self.c, e, self.distribution)
            sums[1] += slope(rise, self.c_alpha, n, self.distribution)
        for_residual, for_logits = (total / self.q for total in sums)
        finite = for_residual.isfinite().all() and for_logits.isfinite().all()
        return (for_residual, for_logits) if finite else None

    def _draw(self, count: int) -> Tensor:
        return draw(count, self.distribution, self.rng).to(self.residual.device)

    def _descend_(self, for_residual: Tensor, for_logits: Tensor) -> None:
        """SGD on ε; AdamW on b once there is something to weigh."""
        decayed = for_residual + self.weight_decay * self.residual
        self.residual = self.residual - self.lr * decayed
        if len(self.bank) == 0:
            return
        if self.variant == "released":  # a first step every time: −lr·sign(ĝ)
            self.adam = AdamW.fresh(self.bank.logits)
        self.bank.logits, self.adam = self.adam.step(
            self.bank.logits, for_logits, self.lr_alpha, self.weight_decay_alpha
        )

    def counters(self) -> dict[str, int]:
        return {"detected_shifts": self.shifts, "stored_vectors": len(self.bank)}

    def fill(self) -> None:
        """Bring the state to its full size, for byte counts: a bank full of zeros."""
        self.bank.fill_()
        self.adam = AdamW.fresh(self.bank.logits)

    def state_dict(self) -> dict[str, Any]:
        """All state; its tensors are replaced by later steps, never changed in place."""
        return {
            "residual": self.residual,
            "bank": self.bank.state_dict(),
            "adam": (self.adam.first, self.adam.second, self.adam.steps),
            "domain": self.monitor.domain,
            "min_batch": self.monitor.min_batch,
            "mean": self.history.mean,
            "rng": self.rng.get_state(),
            "batches": self.batches,
            "shifts": self.shifts,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual = state["residual"]
        self.bank.load_state_dict(state["bank"])
        self.adam = AdamW(*state["adam"])
        self.monitor.domain, self.monitor.min_batch = state["domain"], state["min_batch"]
        self.history.mean = state["mean"]
        self.rng.set_state(state["rng"])
        self.batches, self.shifts = state["batches"], state["shifts"]
        self.parameters.write_(self.bank.combine() + self.residual)
