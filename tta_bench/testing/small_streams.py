"""Streams over the labels of a small data set, without images, for checks of scenarios."""

from __future__ import annotations

import numpy as np

from tta_bench.api import Domain, Scenario, Stream, StreamSchedule

CLASSES, PER_CLASS, BATCH, ROUNDS = 4, 60, 16, 2
DOMAINS = tuple(Domain(name, 5) for name in ("gaussian_noise", "fog", "contrast"))
LABELS = np.tile(np.arange(CLASSES), PER_CLASS)


def stream_of(scenario: Scenario, seed: int = 1, order: str = "shuffled", straddle: bool = False) -> Stream:
    """A stream of the scenario over three domains of 240 images in 4 classes."""
    schedule = StreamSchedule(DOMAINS, ROUNDS, seed, scenario, order, straddle=straddle)
    return Stream(schedule, BATCH, LABELS)


def pairs_of(stream: Stream, round: int = 1) -> list[list[tuple[str, int, int, int]]]:
    """Corruption, severity, visit and image of everything in a round, by segment."""
    found = []
    for index, segment in enumerate(stream.schedule.segments(round)):
        places = [visit.place for visit in segment.visits]
        found.append([(*places[number], image) for number, image in stream.pairs(round, index).tolist()])
    return found
