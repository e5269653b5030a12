"""Severities that rise to a peak and fall again, as in CoTTA's gradual stream."""

from __future__ import annotations


def rise_and_fall(peak: int, from_the_top: bool = False) -> tuple[int, ...]:
    """1, 2, …, peak, …, 2, 1; or its second half, from the peak on."""
    falling = tuple(range(peak, 0, -1))
    return falling if from_the_top else (*falling[:0:-1], *falling)
