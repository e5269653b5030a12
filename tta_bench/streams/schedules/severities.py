"""Severities that rise to a peak and fall again, as in CoTTA's gradual stream."""

from __future__ import annotations


def rise_and_fall(peak: int, from_the_top: bool = False) -> tuple[int, ...]:
    """1, 2, …, peak, …, 2, 1; or its second half, from the peak on."""
    falling = tuple(range(peak, 0, -1))
    return falling if from_the_top else (*falling[:0:-1], *falling)


def gradual(corruptions: int, peak: int, first_from_the_top: bool) -> list[tuple[int, int]]:
    """The number of a corruption and a severity for each segment.

    CoTTA's first corruption starts at the top: 131 segments for 15 corruptions and peak 5; otherwise 135.
    """
    return [
        (number, severity)
        for number in range(corruptions)
        for severity in rise_and_fall(peak, first_from_the_top and number == 0)
    ]
