"""One task in this process: build, quantise, adapt, score; a record for every round and domain."""

from __future__ import annotations

import hashlib
import json
import platform
import socket
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property
from importlib.metadata import version

import torch

from tta_bench import accounts, device, memory
from tta_bench.allocator import keep_freed_memory
from tta_bench.api import Domain, Method, Model, Source
from tta_bench.errors import Unsupported
from tta_bench.exchange import Checkpoint, Delivery, Policy, Start
from tta_bench.feed import Feed
from tta_bench.grid import Cell
from tta_bench.identity import code_of
from tta_bench.isolation import settings_kept
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
                description = self._description(lane)
            except Unsupported as reason:
                yield Delivery(cell.key, [_record(cell, "unsupported") | {"reason": str(reason)}])
            except BROKEN:
                yield Delivery(cell.key, [_failure(cell)])
            else:
                lanes.append(lane)
                yield Delivery(cell.key, description=description)
        if lanes:
            yield from self._stream(lanes, stop)

    def _open(self, cell: Cell, start: Start, others: Sequence[Lane]) -> Lane:
        """The lane of a cell, with a model of its own; only the network that makes features is shared."""
        begun, meter = time.perf_counter(), memory.Meter(self.warm.device)
        check_code(cell)
        with within(self.policy.cell_seconds), meter.watching():
            method = make_method(cell)
            model = self._model(cell, method)
            reason = method.unsupported(model) or method.refuses_batch(cell.batch_size)
            if reason is not None:
                raise Unsupported(reason)
            lane = Lane(cell, method, model, self.policy, start, meter)
            images = self.warm.source_images(cell.data)
            lane.setup(Source(images, cell.batch_size, self.warm.device))
        if method.consumes == "features":
            lane.backbone = self._shared_backbone(lane, others) or self._model(cell, method)
        lane.spent_seconds = time.perf_counter() - begun
        meter.peak_bytes = 0  # the column is about steps
        return lane

    def _model(self, cell: Cell, method: Method) -> Model:
        """A copy of the cell's model that normalises as the method wants its features to be made."""
        with settings_kept(f"model {cell.model.use} or quantizer {cell.quantizer.use}"):
            model = self.warm.model(cell)
            if method.consumes == "features" and method.batch_statistics(model):
                model.use_batch_statistics()
        return model

    def _shared_backbone(self, lane: Lane, others: Sequence[Lane]) -> Model | None:
        """The network that already makes such features for another cell, if there is one."""
        wanted = lane.method.batch_statistics(lane.model)
        same = (
            other.backbone
            for other in others
            if other.backbone is not None and other.method.batch_statistics(other.model) == wanted
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
            made = {"fingerprint": mark, "environment": self.environment_id}
            record = _record(cell, "ok") | where | result | made
            later = range(round + 1, cell.rounds + 1) if lane.repeats else ()
            records = [record, *(record | {"round": r, "repeats": round} for r in later)]
            yield Delivery(cell.key, records, lane.after(place), self._measured(lane, place))
        except BROKEN:
            lane.over = True
            yield Delivery(cell.key, [_failure(cell) | where])
        return True

    def _measured(self, lane: Lane, place: int) -> Record | None:
        """After the last domain, the bytes that CUDA has counted meanwhile."""
        last = place + 1 == lane.places
        return {"measured_bytes": lane.meter.peak_bytes} if lane.meter.peak_bytes and last else None

    def _description(self, lane: Lane) -> Record:
        """What is true of the whole cell: where it runs and by which code and, unless known, its bytes."""
        cell = lane.cell
        described = {
            "weights_sha256": cell.model.fingerprint,
            "data_note": self._data_note(cell),
            "code": {plugin.label: plugin.code for plugin in cell.plugins},
            "environments": {self.environment_id: self.environment},
        }
        if lane.start.described:
            return described
        report = accounts.of(cell)
        return described | {"memory_bytes": report.memory_bytes, "packed_bytes": report.packed_bytes}

    def _data_note(self, cell: Cell) -> str:
        """What a reader must know of the images of this cell."""
        data = self.warm.data(cell.data)
        notes = [data.note(), *(data.domain_note(Domain(*domain)) for domain in cell.domains)]
        return "; ".join(dict.fromkeys(note for note in notes if note))

    @cached_property
    def environment(self) -> Record:
        """What may round sums differently, and where it is."""
        return {
            "versions": {name: version(name) for name in ("tta-bench", "torch", "timm", "numpy")},
            "device": device.name(self.warm.device),
            "cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
            "host": f"{socket.gethostname()}, {platform.machine()}, Python {platform.python_version()}",
        }

    @cached_property
    def environment_id(self) -> str:
        """A short name for it, which every record carries."""
        return hashlib.sha256(json.dumps(self.environment, sort_keys=True).encode()).hexdigest()[:8]


def check_code(cell: Cell) -> None:
    """Raise if a plugin's code here is not that of the driver which planned the run."""
    for plugin in cell.plugins:
        if code_of(plugin.group, plugin.use) != plugin.code:
            raise RuntimeError(
                f"{plugin.label}: its code in this process is not the code that the run started "
                "with: it was edited meanwhile, or this machine has another version. Start the run again."
            )


def _record(cell: Cell, status: str) -> Record:
    return {"key": cell.key, "status": status, "code": cell.code}


def _failure(cell: Cell) -> Record:
    return _record(cell, "failed") | {"reason": traceback.format_exc()}
