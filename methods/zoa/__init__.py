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
from tta_bench_methods._shared.alignment import (
    SPREAD_OF_ONE,
    ActivationShift,
    SourceStatistics,
    feature_mean,
    objective,
    shift_target,
    shifted,
)
from tta_bench_methods._shared.selection import FlatParameters, adapted_norms
from tta_bench_methods._shared.shift_detection import DomainMonitor, channel_statistics
from tta_bench_methods._shared.variant import VariantName
from tta_bench_methods.zoa.bank import AlphaInit, Bank, BankOptions, Policy
from tta_bench_methods.zoa.differences import DIFFERENCES, DOMAIN_KEEP, Differences
from tta_bench_methods.zoa.estimator import AdamW, Distribution, draw, slope
from tta_bench_methods.zoa.prefix import FrozenPrefix
from tta_bench_methods.zoa.presets import settings


@dataclass
class Zoa(Method):
    """Norm parameters θ = θ⁰ + Σ_j α_j Δ_j + ε, with ε and α learnt from 1 + q forward passes.

    Defaults are those of ViT-B W8A8. `variant: released` behaves as the authors' code does wherever that
    differs from the paper; `Differences` lists these points.
    """

    variant: VariantName = "corrected"  # follow the paper, or the authors' code where it differs
    lr: NonNegative = 5e-4  # learning rate of ε
    weight_decay: NonNegative = 0.4  # weight decay of ε
    c: Positive = 0.02  # size of the perturbation of ε, which divides the difference of losses
    q: Count = 1  # perturbations per batch
    distribution: Distribution = "rsu"  # of a perturbation: random signs times U(0.5, 1), or N(0, 1)
    lam: NonNegative = 30.0  # λ, weight of the feature alignment
    lr_alpha: NonNegative = 0.01  # learning rate of α
    weight_decay_alpha: NonNegative = 0.1  # weight decay of α
    c_alpha: Positive = 0.05  # size of the perturbation of α
    temperature: Positive = 10.0  # of the softmax that makes α from its logits
    alpha_init: AlphaInit = "derived"  # α of a new entry of the bank
    residual_limit: Positive = 0.01  # w_m, to which the magnitude of ε is compared
    bank_size: CountOrZero = 32  # N; 0: no bank, the paper's V1
    bank_policy: Policy = "similar"  # which entry leaves a full bank
    # When ε becomes an entry: when the domain changes, or every few batches.
    store: Literal["on_shift", "every"] = "on_shift"
    store_every: Count = 30  # batches
    tau: NonNegative = 0.1  # threshold of the shift detection
    # Smallest batch in which a shift is detected. Null: as large as the first batch; released: 64.
    min_batch: Count | None = None
    shift: bool = True  # activation shifting; false: predict from the features as they are
    share_prefix: bool = True  # compute the frozen blocks once per batch: same numbers, more memory
    seed: Seed = 2020  # of the random draws; filled with the seed of the cell

    version = "3"
    family = "forward-only"
    summary = "zeroth-order steps on norm layers, with a bank of domains"
    needs = "norm layers, clean images"
    min_batch_size = 2
    min_batch_reason = SPREAD_OF_ONE
    search_space = spaces(lr=Log(5e-5, 1e-2), c=Log(3e-3, 0.1), lam=Log(0.3, 100.0))

    def passes(self) -> tuple[int, int]:
        return 1 + self.q, 0

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        return settings(target)

    def unsupported(self, model: Model) -> str | None:
        if not adapted_norms(model):
            return f"needs normalisation layers in the middle blocks, and {model.name} has none"
        return super().unsupported(model)

    @property
    def differences(self) -> Differences:
        """What the chosen variant does where the released code and the paper differ."""
        return DIFFERENCES[self.variant]

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        model.use_batch_statistics()
        norms = adapted_norms(model)
        self.start = norms[0].block
        self.parameters = FlatParameters(norms)
        self.source_statistics = SourceStatistics(*source.layer_statistics(model))
        from_source = self.differences.detects_from_source and not model.tokens
        self.first_domain = self._domain_of(source) if from_source else None
        self.reset()

    @torch.no_grad()
    def _domain_of(self, source: Source) -> Tensor | None:
        """Domain statistics of the clean images."""
        monitor = self._monitor(DOMAIN_KEEP)
        for x in source.batches():
            monitor.changed(channel_statistics(self.model.stem_samples(self.model.stem(x))), len(x))
        return monitor.domain

    def _monitor(self, keep: float) -> DomainMonitor:
        return DomainMonitor(self.tau, keep, self.min_batch or self.differences.min_batch)

    def reset(self) -> None:
        self.rng = torch.Generator().manual_seed(self.seed)
        self.bank = Bank(self.parameters.source, self.parameters.layer_sizes, self._bank_options())
        self.residual = torch.zeros_like(self.parameters.source)  # ε
        self.adam = AdamW.fresh(self.bank.logits)
        self.monitor = self._monitor(self.differences.domain_keep(1 + self.q))
        self.monitor.domain = self.first_domain
        scalar = self.differences.scalar_shift_target and not self.model.tokens
        self.history = ActivationShift(shift_target(self.source_statistics, scalar))
        self.batches = self.shifts = 0
        self.parameters.write_(self.residual)

    def _bank_options(self) -> BankOptions:
        return BankOptions(
            self.bank_size,
            self.bank_policy,
            self.alpha_init,
            self.temperature,
            self.residual_limit,
            self.differences,
        )

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        """Algorithm 1, one batch. Its stem tells whether the domain changes, so storing comes first."""
        prefix = FrozenPrefix(self.model, self.start, x, self.share_prefix)
        changed = self.monitor.changed(prefix.statistics, len(x))
        offset = self._offset_(changed)
        if self._store_is_due(changed):
            self._store_()
        loss, z = self._forward(prefix, self.residual, self.bank.logits)
        output = self.model.head(shifted(z, offset))
        gradients = self._estimate(prefix, loss) if math.isfinite(loss) else None
        if gradients is None:
            self.skip(self._why_skipped(len(x)))
        else:
            self._descend_(*gradients)
        self._write_()
        self.history.update_(feature_mean(z))
        self.batches += 1
        self.shifts += changed
        return output

    def _offset_(self, changed: bool) -> Tensor | None:
        """What the features of this batch are moved by; a new domain starts a new history."""
        offset = self.history.offset() if self.shift else None
        if not changed:
            return offset
        self.history.mean = None
        return offset if self.differences.shifts_by_old_domain else None

    def _store_is_due(self, changed: bool) -> bool:
        if self.bank_size == 0:
            return False
        if self.store == "every":
            return self.batches > 0 and self.batches % self.store_every == 0
        return changed

    def _store_(self) -> None:
        """Store θ − θ⁰ in the bank (Eq. 7), and start over with what is left of ε (Eq. 8)."""
        self.residual = self.bank.store_(self.residual, self.rng)
        self.adam = AdamW.fresh(self.bank.logits)

    def _forward(self, prefix: FrozenPrefix, residual: Tensor, logits: Tensor) -> tuple[float, Tensor]:
        """The loss (Eq. 6) and the features z of one pass with the given ε and b."""
        self.parameters.write_(self.bank.combine(logits) + residual)
        layers, z = prefix.forward()
        gaps = self.source_statistics.gaps(layers)
        return objective(self.model.head(z), gaps, self.lam, "mean").item(), z

    def _estimate(self, prefix: FrozenPrefix, loss: float) -> tuple[Tensor, Tensor] | None:
        """ĝ(ε) and ĝ(b), averaged over q perturbations of both (Eq. 3 and 5); None if not finite."""
        sums = [torch.zeros_like(self.residual), torch.zeros_like(self.bank.logits)]
        for _ in range(self.q):
            e, n = self._draw(len(self.residual)), self._draw(len(self.bank.logits))
            perturbed = self.residual + self.c * e, self.bank.logits + self.c_alpha * n
            rise = self._forward(prefix, *perturbed)[0] - loss
            sums[0] += slope(rise, self.c, e, self.distribution)
            sums[1] += slope(rise, self.c_alpha, n, self.distribution)
        for_residual, for_logits = (total / self.q for total in sums)
        finite = for_residual.isfinite().all() and for_logits.isfinite().all()
        return (for_residual, for_logits) if finite else None

    def _draw(self, count: int) -> Tensor:
        return draw(count, self.distribution, self.rng).to(self.residual.device)

    def _descend_(self, for_residual: Tensor, for_logits: Tensor) -> None:
        """SGD on ε; AdamW on b as soon as a vector is stored."""
        decayed = for_residual + self.weight_decay * self.residual
        self.residual = self.residual - self.lr * decayed
        if len(self.bank) == 0:
            return
        adam = AdamW.fresh(self.bank.logits) if self.differences.clears_adam else self.adam
        self.bank.logits, self.adam = adam.step(
            self.bank.logits, for_logits, self.lr_alpha, self.weight_decay_alpha
        )

    def _why_skipped(self, images: int) -> str:
        if images < self.min_batch_size:
            return f"a batch of one image: {SPREAD_OF_ONE}"
        return "the loss or its estimated gradient was not finite"

    def _write_(self) -> None:
        """θ ← θ⁰ + Σ_j α_j Δ_j + ε in the model."""
        self.parameters.write_(self.bank.combine() + self.residual)

    def counters(self) -> dict[str, int]:
        return {"detected_shifts": self.shifts, "stored_vectors": len(self.bank)}

    def fill(self) -> None:
        """Bring the state to its full size, for byte counts: fill the bank with zeros."""
        self.bank.fill_()
        self.adam = AdamW.fresh(self.bank.logits)

    def state_dict(self) -> dict[str, Any]:
        """All state. Later steps replace its tensors and never change them in place."""
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
        self._write_()
