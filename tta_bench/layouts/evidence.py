"""What the records of a line say in a column, as statistics take it: scores, and batches of a single seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from tta_bench.layouts.lines import Line
from tta_bench.layouts.plan import Spec
from tta_bench.layouts.records import Record, Slot
from tta_bench.statistics import Batches, Evidence


def evidence(line: Line, spec: Spec, scope: Sequence[Slot]) -> Evidence | None:
    """A line's accuracy by seed and domain, rounds averaged; None unless all of it is there."""
    if spec.facets:
        line = line.narrowed(spec.facets)
    wanted = [s for s in scope if spec.needs(s) and (not spec.facets or s.facet in spec.facets)]
    if not wanted or any(slot not in done for done in line.done.values() for slot in wanted):
        return None
    if any(record.stopped for record in line.records):
        return None
    domains: dict[tuple[str, int, str], list[Slot]] = defaultdict(list)
    for slot in wanted:
        domains[slot.corruption, slot.severity, slot.facet].append(slot)
    found = [[[done[s] for s in slots] for slots in domains.values()] for done in line.done.values()]
    scores = [[fmean(r.accuracy or 0.0 for r in rounds) for rounds in of_seed] for of_seed in found]
    images = sum(max(r.n or 0 for r in rounds) for of_seed in found for rounds in of_seed)
    return Evidence(np.array(scores), images, _batches(found[0]) if len(found) == 1 else None)


def _batches(domains: Sequence[Sequence[Record]]) -> tuple[Batches, ...] | None:
    """The batches of one seed by domain; None if a record does not tell them."""
    found = [_of_domain(rounds) for rounds in domains]
    return None if any(each is None for each in found) else tuple(each for each in found if each is not None)


def _of_domain(rounds: Sequence[Record]) -> Batches | None:
    """The batches of one domain: hits in each, rounds that brought the same batches as one."""
    told = [record.correct_per_batch for record in rounds]
    images, size = rounds[0].n or 0, rounds[0].batch_size
    count = -(-images // size)
    if any(hits is None or len(hits) != count for hits in told) or not count:
        return None
    hits = np.array(told, float)
    if len({record.fingerprint for record in rounds}) == 1:
        hits = hits.mean(axis=0, keepdims=True)
    sizes = np.full(count, size)
    sizes[-1] = images - size * (count - 1)
    return Batches(hits, sizes)
