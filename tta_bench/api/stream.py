"""The order in which test images arrive: a schedule of segments, and the batches of each."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from tta_bench.api.data import Domain
from tta_bench.api.scenario import Scenario, SegmentImages

Pairs = np.ndarray  # [M, 2]: the number of a visit in its segment, and the index of an image


@dataclass(frozen=True)
class Visit:
    """A domain in a round; `number` counts how often the round has come to it, from 1, and `of` in all."""

    domain: Domain
    number: int = 1
    of: int = 1

    @property
    def place(self) -> tuple[str, int, int]:
        """What distinguishes it from other visits of a round: corruption, severity and number."""
        return (self.domain.corruption, self.domain.severity, self.number)

    def __str__(self) -> str:
        return str(self.domain) if self.number == 1 else f"{self.domain}/{self.number}"


@dataclass(frozen=True)
class Segment:
    """A part of a round that is run as one: its name in the round, and the visits whose images it holds."""

    name: str
    visits: tuple[Visit, ...]

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The domain of every visit."""
        return tuple(visit.domain for visit in self.visits)


@dataclass(frozen=True)
class StreamSchedule:
    """The segments of every round, known before any image or label is read."""

    domains: tuple[Domain, ...]
    rounds: int
    seed: int
    scenario: Scenario
    order: str = "shuffled"
    domain_order: str = "file"
    straddle: bool = False  # one segment for each round: batches cross the borders of domains
    _known: dict[int, tuple[Segment, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def fixed(self) -> bool:
        """Whether every round has the same batches."""
        return self.order != "reshuffled" and self.domain_order != "per-round"

    def segments(self, round: int) -> tuple[Segment, ...]:
        """The segments of a round as they are run."""
        parts = self.parts(round)
        return (Segment("round", tuple(chain(*(part.visits for part in parts)))),) if self.straddle else parts

    def parts(self, round: int) -> tuple[Segment, ...]:
        """The segments of a round as the scenario plans them."""
        turn = 0 if self.fixed else round
        if turn not in self._known:
            self._known[turn] = self._planned(turn)
        return self._known[turn]

    def visits(self, round: int) -> tuple[Visit, ...]:
        """All visits of a round: each has a record."""
        return tuple(chain(*(part.visits for part in self.parts(round))))

    def lengths(self, round: int, count: int) -> list[int]:
        """Images in each segment of a round, as far as is known before labels are read."""
        found = [self.scenario.length(part.domains, count) for part in self.parts(round)]
        return [sum(found)] if self.straddle else found

    def content(self, round: int, index: int) -> tuple[object, ...]:
        """What decides the batches of a segment: segments for which it is equal have equal fingerprints.

        A scenario that does not arrange images itself leaves them in their order, which has no random numbers
        of the segment.
        """
        named = type(self.scenario).arrange is not Scenario.arrange and self.order != "aligned"
        parts = self.parts(round) if self.straddle else (self.parts(round)[index],)
        return (self.turn(round), *((part.domains, part.name if named else "") for part in parts))

    def turn(self, round: int) -> int:
        """The number that distinguishes the random orders of rounds: 0 if they are the same in all rounds."""
        return round if self.order == "reshuffled" else 0

    def generator(self, *words: object) -> np.random.Generator:
        """A generator that depends on the seed, the scenario, its parameters and these words."""
        return generator(self.seed, *words, self.scenario.text)

    def _planned(self, round: int) -> tuple[Segment, ...]:
        rng = self.generator(self.turn(round), "schedule")
        planned = self.scenario.schedule(self._ordered(round), rng)
        totals, seen, segments = Counter(chain(*planned)), Counter[Domain](), []
        for number, domains in enumerate(planned, start=1):
            seen.update(domains)
            visits = tuple(Visit(domain, seen[domain], totals[domain]) for domain in domains)
            segments.append(Segment(str(visits[0]) if len(visits) == 1 else f"segment {number}", visits))
        return tuple(segments)

    def _ordered(self, round: int) -> tuple[Domain, ...]:
        if self.domain_order == "file":
            return self.domains
        words = ("domains", round) if self.domain_order == "per-round" else ("domains",)
        return tuple(self.domains[i] for i in generator(self.seed, *words).permutation(len(self.domains)))


@dataclass(frozen=True)
class Stream:
    """The batches of every segment; they depend on the seed and on no method."""

    schedule: StreamSchedule
    batch_size: int
    labels: np.ndarray  # of the images that are used; the same in all domains
    _last: dict[tuple[int, int], Pairs] = field(default_factory=dict, init=False, repr=False, compare=False)
    _sizes: dict[tuple[int, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def count(self) -> int:
        """How many images of each domain are used."""
        return len(self.labels)

    def pairs(self, round: int, index: int) -> Pairs:
        """The images of segment number `index` of a round in order of arrival."""
        where = (0 if self.schedule.fixed else round, index)
        if where not in self._last:
            found = self._arranged(round, index)
            self._last.clear()  # all methods of a task read the same segment
            self._last[where], self._sizes[where] = found, len(found)
        return self._last[where]

    def batches(self, round: int, index: int) -> list[Pairs]:
        """The images of a segment in batches; a partial last batch is kept."""
        pairs = self.pairs(round, index)
        return [pairs[i : i + self.batch_size] for i in range(0, len(pairs), self.batch_size)]

    def batches_before(self, round: int, index: int) -> int:
        """The number of batches of the whole stream before a segment."""
        per_round = len(self.schedule.segments(1))
        places = (divmod(i, per_round) for i in range((round - 1) * per_round + index))
        return sum(-(-self._size(earlier + 1, i) // self.batch_size) for earlier, i in places)

    def fingerprint(self, round: int, index: int, data_fingerprint: str) -> str:
        """The first 16 digits of a SHA-256 over the images of a segment, their order and the batch size."""
        pairs, segment = self.pairs(round, index), self.schedule.segments(round)[index]
        domains = ",".join(map(str, segment.domains))
        digest = hashlib.sha256(f"{data_fingerprint}/{domains}/{self.batch_size}/".encode())
        digest.update((pairs[:, 1] if len(segment.visits) == 1 else pairs).astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def _size(self, round: int, index: int) -> int:
        where = (0 if self.schedule.fixed else round, index)
        if where not in self._sizes:
            self.pairs(round, index)
        return self._sizes[where]

    def _arranged(self, round: int, index: int) -> Pairs:
        parts = self.schedule.parts(round)
        if not self.schedule.straddle:
            return self._part(round, parts[index])
        found, first = [], 0
        for part in parts:
            found.append(self._part(round, part) + np.array([first, 0]))
            first += len(part.visits)
        return np.concatenate(found)

    def _part(self, round: int, part: Segment) -> Pairs:
        """The images of one segment as the scenario plans it; ValueError if it breaks its contract."""
        schedule, turn = self.schedule, self.schedule.turn(round)
        name = () if schedule.order == "aligned" else (part.name,)
        images = SegmentImages(
            domains=part.domains,
            orders=tuple(self._order(round, domain) for domain in part.domains),
            labels=self.labels,
            rng=schedule.generator(turn, "segment", *name),
            stream_rng=schedule.generator(turn, "stream"),
        )
        pairs = np.asarray(schedule.scenario.arrange(images))
        if problem := broken(pairs, len(part.visits), self.count, schedule.scenario.resamples):
            raise ValueError(f"scenario {type(schedule.scenario).__name__}, {part.name}: {problem}")
        return pairs.astype(np.int64)

    def _order(self, round: int, domain: Domain) -> np.ndarray:
        """Indices of the test images of one domain as `order` says."""
        if self.schedule.order == "sequential":
            return np.arange(self.count)
        name = "aligned" if self.schedule.order == "aligned" else domain
        return generator(self.schedule.seed, self.schedule.turn(round), name).permutation(self.count)


def generator(*words: object) -> np.random.Generator:
    """A random generator that is seeded with the SHA-256 of these words, on every machine alike."""
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, np.uint32))


def broken(pairs: Any, domains: int, count: int, resamples: bool) -> str:
    """How an arrangement of `count` images of so many domains breaks the contract; empty if it does not."""
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        return f"arrange() gives {pairs.dtype} of shape {pairs.shape}, and must give whole numbers [M, 2]"
    if len(pairs) == 0 or (pairs < 0).any() or (pairs >= [domains, count]).any():
        return f"arrange() gives no images, or others than the {count} of its {domains} domains"
    counts = np.bincount(pairs[:, 0] * count + pairs[:, 1], minlength=domains * count)
    if not resamples and (counts != 1).any():
        return "arrange() repeats or leaves out images; a scenario that does so declares `resamples`"
    if missing := sum(not part.any() for part in counts.reshape(domains, count)):
        return f"{missing} of its {domains} domains have no image: raise stream.limit or its own length"
    return ""
