"""The error of samplers that draw until a condition is met."""

from __future__ import annotations

from tta_bench.errors import UserError


class NoDraw(UserError):
    """No draw met the conditions of a sampler within its number of tries."""
