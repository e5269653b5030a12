"""What a cell can share: the facts of its method that decide which rounds and passes are computed."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from tta_bench.api import Method, Segment, StreamSchedule
from tta_bench.api.method import passes_per_batch
from tta_bench.footprint.skeleton import skeleton
from tta_bench.grid import Cell
from tta_bench.plugins.identity import PluginIdentity

# Features that one worker keeps on disk: three times what the 15 domains of ImageNet-C make with a ViT-B.
FEATURE_CACHE_BYTES = 8 * 2**30


@dataclass(frozen=True)
class ResolvedCell:
    """A cell and the facts of its method, as plain data; planning, workers and the recorder all read these.

    A position is the number of a segment, counted from 0 through all rounds in the order of the stream.
    """

    cell: Cell
    share: bool  # compute only once what cells or rounds have in common
    reads_features: bool  # its method takes features, not images
    stateless: bool  # across segments: the numbers of a segment do not depend on earlier segments
    equal_rounds: bool  # every round gives the numbers of the first
    resumable: bool  # a run can continue after a segment from the saved state of the method
    forwards: int  # declared passes per batch
    backwards: int
    predicts: bool = True  # without adapting, in one pass; otherwise a prediction costs as much as a step
    rereads_window: bool = False  # a prediction passes all images of the window, not only the last one

    @property
    def key(self) -> str:
        """The cell's key."""
        return self.cell.key

    @property
    def repeats(self) -> bool:
        """Whether only the first round is computed, and the others repeat its records."""
        return self.share and self.equal_rounds

    @cached_property
    def rereads(self) -> bool:
        """Whether some segments read the features of earlier ones again."""
        return self.reads_features and len(self.passed(range(self.segments))) < self.positions

    def passed(self, indices: Iterable[int]) -> list[tuple[int, int]]:
        """Round and number of those segments among `indices` of every round whose features are computed.

        The others have the batches of an earlier one. Rounds that are reshuffled share nothing.
        """
        once = self.repeats or (self.share and self.schedule.fixed)
        rounds = range(1, 1 + (1 if once else self.cell.rounds))
        places = [(round, index) for round in rounds for index in indices]
        if not self.share or self.schedule.order == "reshuffled":
            return places
        first: dict[Hashable, tuple[int, int]] = {}
        for place in places:
            first.setdefault(self.schedule.content(*place), place)
        return list(first.values())

    @property
    def positions(self) -> int:
        """How many segments are computed, over all rounds."""
        return self.segments * (1 if self.repeats else self.cell.rounds)

    @property
    def schedule(self) -> StreamSchedule:
        """The segments of every round."""
        return self.cell.schedule

    @cached_property
    def segments(self) -> int:
        """The number of segments of every round."""
        return len(self.schedule.segments(1))

    @property
    def predicts_by_steps(self) -> bool:
        """Whether images between two adaptations cost as much as a step, which takes several passes."""
        rate = max(self.cell.adapt_every, self.cell.window) > 1
        return rate and not self.predicts and self.forwards + self.backwards > 1

    @property
    def step_passes(self) -> float:
        """Declared passes per batch, a backward pass counted as two; the mean if only some batches adapt.

        A window counts from its first step on. Its batches have one image, and a step is on all its images.
        """
        step, window, period = self.forwards + 2 * self.backwards, self.cell.window, self.cell.adapt_every
        predicting = 1 if self.predicts else step
        if window == 1:
            return (step + (period - 1) * predicting) / period
        return step + (window - 1) * predicting * (1 if self.rereads_window else 1 / window)

    def at(self, position: int) -> tuple[int, int]:
        """Round (from 1) and number of a segment in it (from 0) at a position."""
        turn, index = divmod(position, self.segments)
        return turn + 1, index

    def segment(self, position: int) -> Segment:
        """The segment at a position."""
        round, index = self.at(position)
        return self.schedule.segments(round)[index]

    @cached_property
    def _indices(self) -> dict[tuple[Any, ...], int]:
        """The number of its segment for every visit; with the round unless all rounds are equal."""
        rounds = (1,) if self.schedule.fixed else range(1, self.cell.rounds + 1)
        return {
            (0 if self.schedule.fixed else round, *visit.place): index
            for round in rounds
            for index, segment in enumerate(self.schedule.segments(round))
            for visit in segment.visits
        }

    def position(self, round: int, place: tuple[Any, ...]) -> int:
        """The position of the segment that visits a domain; `place` has corruption, severity, number."""
        index = self._indices[(0 if self.schedule.fixed else round, *place)]
        return (round - 1) * self.segments + index

    def recorded_with(self, position: int) -> set[tuple[Any, ...]]:
        """Round, corruption, severity and visit of all records that this position makes.

        These are the visits of its segment and, if rounds repeat, the same visits in all later rounds.
        """
        round, _ = self.at(position)
        rounds = range(round, self.cell.rounds + 1) if self.repeats else (round,)
        return {(each, *visit.place) for each in rounds for visit in self.segment(position).visits}


def resolve(cell: Cell, share: bool = True) -> ResolvedCell:
    """The facts of a cell, from an instance of its method; without `share`, nothing is computed only once."""
    method: Method = cell.method.make()
    stateless = method.memory in ("none", "batch") or cell.reset in ("domain", "batch")
    forwards, backwards = passes_per_batch(method)
    return ResolvedCell(
        cell=cell,
        share=share,
        reads_features=method.consumes == "features",
        stateless=stateless,
        equal_rounds=stateless and cell.schedule.fixed,
        resumable=method.memory != "stream" or type(method).state_dict is not Method.state_dict,
        forwards=forwards,
        backwards=backwards,
        predicts=type(method).predict is not Method.predict,
        rereads_window=cell.window > 1 and method.consumes == "images" and _has_batch_norm(cell.model),
    )


def _has_batch_norm(model: PluginIdentity) -> bool:
    return _network_has_batch_norm(model.use, json.dumps(model.params, sort_keys=True))


@lru_cache(maxsize=64)
def _network_has_batch_norm(use: str, params: str) -> bool:
    return bool(skeleton(PluginIdentity("models", use, json.loads(params)).make()).batch_norms())


def pass_identity(cell: Cell) -> tuple[object, ...]:
    """What decides the features of a stream; cells for which it is equal can share one pass."""
    domains = (cell.domains, cell.rounds, cell.domain_order, cell.straddle)
    stream = (*domains, cell.batch_size, cell.limit, cell.order, cell.seed)
    scenario = () if cell.scenario is None else (cell.scenario,)
    plugins = (cell.data, cell.model, cell.quantizer, *cell.corruptions, *scenario)
    return (*(plugin.digest for plugin in plugins), stream, cell.threads)
