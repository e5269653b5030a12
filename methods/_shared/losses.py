"""Losses of logits that several methods minimise."""

from __future__ import annotations

import torch
from torch import Tensor

CONFIDENT = 0.9  # probability from which `pl` trusts its own label
GCE_POWER = 0.8


def information_maximisation(logits: Tensor) -> Tensor:
    """Mean entropy minus the entropy of the mean prediction (SHOT-IM)."""
    p = logits.softmax(1)
    mean = p.mean(0)
    return -(p * (p + 1e-10).log()).sum(1).mean() + (mean * (mean + 1e-10).log()).sum()


def pseudo_label(logits: Tensor, confident: float = CONFIDENT) -> Tensor | None:
    """Cross-entropy to the predicted labels of confident images; None if there are none."""
    log_p = logits.log_softmax(1).amax(1)
    kept = ~(log_p.detach().exp() <= confident)  # NaN is kept: its gradient is NaN in any case
    return -log_p[kept].mean() if kept.any() else None


def generalised_cross_entropy(logits: Tensor) -> Tensor:
    """Mean of (1 − p^0.8)/0.8 with the largest probability p (RPL)."""
    return ((1 - logits.softmax(1).amax(1) ** GCE_POWER) / GCE_POWER).mean()


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """CE(softmax target → softmax logits) of each row."""
    return -(target.softmax(1) * logits.log_softmax(1)).sum(1)


def symmetric_cross_entropy(a: Tensor, b: Tensor) -> Tensor:
    """½·CE(a → b) + ½·CE(b → a) of each row."""
    return (cross_entropy(a, b) + cross_entropy(b, a)) / 2


def soft_likelihood_ratio(logits: Tensor) -> Tensor:
    """−Σ_c p̃·log(p̃/(1 − p̃) + 1e-5) of each row, with probabilities cut at 0.99."""
    p = logits.softmax(1).clamp_max(0.99)
    return -(p * torch.log(p / (1 - p) + 1e-5)).sum(1)
