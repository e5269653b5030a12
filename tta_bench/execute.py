"""One task in this process: build, quantise, adapt, score; a record for every round and domain."""

from __future__ import annotations

import platform
import socket
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib.metadata import version

import torch

from tta_bench import accounts, device, memory
from tta_bench.allocator import keep_freed_memory
from tta_bench.api import Domain, Method, Model, Source
from tta_bench.errors import Unsupported
from tta_bench.exchange import Checkpoint, Delivery, Policy, Start
from tta_bench.feed import Feed
from tta_bench.grid import Cell
from tta_bench.lane import Lane
from tta_bench.limits import TimeLimit, within
from tta_bench.plan import make_method, rereads
from tta_bench.store import Record
from tta_bench.warm import Warm

# Whatever a plugin raises is its cell's result, and no other cell's; so is a call of exit().
BROKEN = (Exception, SystemExit, TimeLimit)


class Executor:
    """Runs tasks one after the other, and keeps what the next may need."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        torch.set_num_threads(self.policy.threads)
        keep_freed_memory()
        self.warm = Warm(device.chosen(self.policy.device))

    def prepare(self, cell: Cell, domain: Domain) -> None:
        """Make a domain's images ready."""
        data = self.warm.data(cell.data)
        data.prepare(domain, cell.stream(len(data.test_labels())).count)

    def run(
        self,
        cells: Sequence[Cell],
        starts: Sequence[Start] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Delivery]:
        """Records and checkpoints as they come, each cell from its own start; the end, or `stop`, ends it."""
        lanes: list[Lane] = []
        for cell, start in zip(cells, starts or [Start()] * len(cells), strict=True):
            if stop():
                return
            try:
                lane = self._open(cell, start, lanes)
                facts = [] if start.described else [self._facts(lane)]
            except Unsupported as reason:
                yield Delivery(cell.key, [_record(cell, "unsupported") | {"reason": str(reason)}])
            except BROKEN:
                yield Delivery(cell.key, [_failure(cell)])
            else:
                lanes.append(lane)
                if facts:
                    yield Delivery(cell.key, facts)
        if lanes:
            yield from self._stream(lanes, stop)

    def _open(self, cell: Cell, start: Start, others: Sequence[Lane]) -> Lane:
        """The lane of a cell; cells that read the same features share one model."""
        begun, meter = time.perf_counter(), memory.Meter(self.warm.device)
        with within(self.policy.cell_seconds), meter.watching():
            method = make_method(cell)
            model = self._shared_model(method, others)
            if model is None:
                model = self.warm.model(cell)
            else:
                meter.hold(model)
            reason = method.unsupported(model)
            if reason is not None:
                raise Unsupported(reason)
            if method.consumes == "features" and method.batch_statistics(model):
                model.use_batch_statistics()
            lane = Lane(cell, method, model, self.policy, start, meter)
            images = self.warm.data(cell.data).source_images()
            lane.setup(Source(images, cell.batch_size, self.warm.device))
        lane.spent_seconds = time.perf_counter() - begun
        meter.peak_bytes = 0  # the column is about steps
        return lane

    def _shared_model(self, method: Method, others: Sequence[Lane]) -> Model | None:
        """The model of another consumer of the same features, if there is one."""
        if method.consumes != "features":
            return None
        same = (
            other.model
            for other in others
            if other.method.batch_statistics(other.model) == method.batch_statistics(other.model)
        )
        return next(same, None)

    def _stream(self, lanes: list[Lane], stop: Callable[[], bool]) -> Iterator[Delivery]:
        cell = lanes[0].cell
        try:
            keep = self.policy.share and any(rereads(lane.cell, lane.method) for lane in lanes)
            feed = Feed(self.warm.data(cell.data), cell, lanes[0].model.num_classes, keep)
        except BROKEN:
            yield from [Delivery(lane.cell.key, [_failure(lane.cell)]) for lane in lanes]
            return
        for place in range(max(lane.places for lane in lanes)):
            for lane in lanes:
                if lane.wants(place):
                    going_on = yield from self._domain(lane, place, feed, stop)
                    if not going_on or stop():
                        return

    def _domain(
        self, lane: Lane, place: int, feed: Feed, stop: Callable[[], bool]
    ) -> Generator[Delivery, None, bool]:
        """Run one domain of one lane; False if it was stopped before its end."""
        cell, result = lane.cell, None
        round, domain = lane.where(place, feed)
        where = {"round": round, "corruption": domain.corruption, "severity": domain.severity}
        try:
            with lane.meter.watching():
                for found in lane.run(place, feed, stop):
                    if isinstance(found, Checkpoint):
                        yield Delivery(cell.key, checkpoint=found)
                    else:
                        result = found
            if result is None:
                return False
            mark = feed.stream.fingerprint(round, domain, cell.data.fingerprint)
            record = _record(cell, "ok") | where | result | {"fingerprint": mark}
            later = range(round + 1, cell.rounds + 1) if lane.repeats else ()
            records = [record, *(record | {"round": r, "repeats": round} for r in later)]
            yield Delivery(cell.key, records + self._measured(lane, place), lane.after(place))
        except BROKEN:
            lane.over = True
            yield Delivery(cell.key, [_failure(cell) | where])
        return True

    def _measured(self, lane: Lane, place: int) -> list[Record]:
        """After the last domain, the cell's facts once more, if CUDA has counted bytes meanwhile."""
        return [self._facts(lane)] if lane.meter.peak_bytes and place + 1 == lane.places else []

    def _facts(self, lane: Lane) -> Record:
        """What is true of the whole cell: bytes, versions, where it ran."""
        cell = lane.cell
        report = accounts.of(cell)
        return {
            "kind": "cell",
            "key": cell.key,
            "memory_bytes": report.memory_bytes,
            "packed_bytes": report.packed_bytes,
            "measured_bytes": lane.meter.peak_bytes or None,
            "weights_sha256": cell.model.fingerprint,
            "data_note": self.warm.data(cell.data).note(),
            "versions": {name: version(name) for name in ("tta-bench", "torch", "timm", "numpy")},
            "device": device.name(self.warm.device),
            "host": f"{socket.gethostname()}, {platform.machine()}, Python {platform.python_version()}",
        }


def _record(cell: Cell, status: str) -> Record:
    return {"kind": "domain", "key": cell.key, "status": status}


def _failure(cell: Cell) -> Record:
    return _record(cell, "failed") | {"reason": traceback.format_exc()}
