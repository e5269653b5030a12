"""One task in this process: build, quantise, adapt, score; a record for every round and domain."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import random
import socket
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor

from tta_bench import memory
from tta_bench.api import Data, Domain, Method, Model, Passes, Source, Stream
from tta_bench.errors import Unsupported
from tta_bench.grid import Cell
from tta_bench.plan import make_method, repeats
from tta_bench.score import Score
from tta_bench.store import Record
from tta_bench.warm import Warm

FEATURE_CACHE_BYTES = 512 * 2**20
Batch = tuple[Tensor, float]  # what a method's step receives, and the seconds it took to get


class Lane:
    """A cell on its way through the stream."""

    def __init__(self, cell: Cell, method: Method, model: Model) -> None:
        self.cell, self.method, self.model = cell, method, model
        self.repeats = repeats(cell, method)
        self.failed = False

    def setup(self, source: Source) -> None:
        """Give the method its model and the clean images; passes of the setup are not counted."""
        seed_everything(self.cell.key)
        with torch.no_grad():
            self.method.setup(self.model, source)

    def run(self, round: int, domain: Domain, batches: Iterable[Batch], labels: list[Tensor]) -> Record:
        """Adapt to and score one domain."""
        seed_everything(f"{self.cell.key}/{round}/{domain}")
        if self.cell.reset == "domain":
            self.method.reset()
        before, skipped = dataclasses.replace(self.model.passes), self.method.skipped_updates
        score, seconds = Score(), 0.0
        for (batch, load_seconds), target in zip(batches, labels, strict=True):
            start = time.perf_counter()
            with torch.no_grad():
                output = self.method.step(batch)
            seconds += time.perf_counter() - start + load_seconds
            score.add(output.detach().cpu(), target, self.method.outputs)
        return score.summary() | {
            **self._passes_since(before, score.images),
            "skipped_updates": self.method.skipped_updates - skipped,
            "seconds": seconds,
        }

    def _passes_since(self, before: Passes, images: int) -> Record:
        if self.method.consumes == "features":  # the shared pass is one that it needs for itself
            return {"forward_images": images, "backward_images": 0}
        now = self.model.passes
        return {
            "forward_images": now.forward_images - before.forward_images,
            "backward_images": now.backward_images - before.backward_images,
        }


class Executor:
    """Runs tasks one after the other, and keeps what the next may need."""

    def __init__(self, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        self.warm = Warm()

    def prepare(self, cell: Cell, domain: Domain) -> None:
        """Make a domain's images ready."""
        data = self.warm.data(cell.data)
        data.prepare(domain, cell.stream(len(data.test_labels())).count)

    def run(self, cells: Sequence[Cell]) -> Iterator[list[Record]]:
        """Records as they come; those of one list are of one cell and become known together."""
        lanes: list[Lane] = []
        for cell in cells:
            try:
                lanes.append(self._open(cell, lanes))
                yield [self._facts(lanes[-1])]
            except Unsupported as reason:
                yield [_record(cell, "unsupported") | {"reason": str(reason)}]
            except Exception:
                yield [_failure(cell)]
        if lanes:
            yield from self._stream(lanes)

    def _open(self, cell: Cell, others: Sequence[Lane]) -> Lane:
        """The lane of a cell; cells that read the same features share one model."""
        method = make_method(cell)
        model = self.warm.model(cell)
        reason = method.unsupported(model)
        if reason is not None:
            raise Unsupported(reason)
        if method.consumes == "features":
            batch_statistics = method.batch_statistics(model)
            for other in others:
                if other.method.batch_statistics(other.model) == batch_statistics:
                    model = other.model
                    break
            else:
                if batch_statistics:
                    model.use_batch_statistics()
        lane = Lane(cell, method, model)
        lane.setup(Source(self.warm.data(cell.data).source_images(), cell.batch_size))
        return lane

    def _stream(self, lanes: list[Lane]) -> Iterator[list[Record]]:
        cell = lanes[0].cell
        data = self.warm.data(cell.data)
        truth = torch.from_numpy(data.test_labels())
        feed = Feed(data, cell.stream(len(truth)))
        for round in range(1, cell.rounds + 1):
            for domain in feed.stream.domains:
                labels = [truth[torch.from_numpy(i)] for i in feed.stream.batches(round, domain)]
                for lane in lanes:
                    if not lane.failed and (round == 1 or not lane.repeats):
                        yield self._domain(lane, feed, round, domain, labels)

    def _domain(
        self, lane: Lane, feed: Feed, round: int, domain: Domain, labels: list[Tensor]
    ) -> list[Record]:
        """The records of one domain: one, or as many as there are rounds if they all are this one."""
        place = {"round": round, "corruption": domain.corruption, "severity": domain.severity}
        try:
            result = lane.run(round, domain, feed.batches(lane, round, domain), labels)
        except Exception:
            lane.failed = True
            return [_failure(lane.cell) | place]
        mark = feed.stream.fingerprint(round, domain, lane.cell.data.fingerprint)
        record = _record(lane.cell, "ok") | place | result | {"fingerprint": mark}
        if not lane.repeats:
            return [record]
        later = range(round + 1, lane.cell.rounds + 1)
        return [record, *(record | {"round": r, "repeats": round} for r in later)]

    def _facts(self, lane: Lane) -> Record:
        """What is true of the whole cell: bytes, versions, where it ran."""
        cell = lane.cell
        report = memory.account(
            cell.model.make("models"),
            cell.quantizer.make("quantizers"),
            make_method(cell),
            cell.batch_size,
        )
        return {
            "kind": "cell",
            "key": cell.key,
            "memory_bytes": report.memory_bytes,
            "packed_bytes": report.packed_bytes,
            "measured_bytes": report.measured_bytes,
            "weights_sha256": cell.model.fingerprint,
            "versions": {name: version(name) for name in ("tta-bench", "torch", "timm", "numpy")},
            "host": f"{socket.gethostname()}, {platform.machine()}, Python {platform.python_version()}",
        }


class Feed:
    """Batches for the lanes of one task. Features are computed once, and kept while they fit."""

    def __init__(self, data: Data, stream: Stream) -> None:
        self.data, self.stream = data, stream
        self._kept: dict[tuple[int, int, Domain], list[Batch]] = {}
        self._bytes = 0

    def batches(self, lane: Lane, round: int, domain: Domain) -> Iterable[Batch]:
        """What the lane's method receives, in order."""
        if lane.method.consumes == "images":
            return ((self._images(i, domain), 0.0) for i in self.stream.batches(round, domain))
        turn = 0 if self.stream.fixed_batches else round
        known = (id(lane.model), turn, domain)
        if known not in self._kept:
            if not self.stream.fixed_batches or self._bytes > FEATURE_CACHE_BYTES:
                self._kept, self._bytes = {}, 0
            features = [self._features(lane.model, i, domain) for i in self.stream.batches(round, domain)]
            self._kept[known] = features
            self._bytes += sum(z.nbytes for z, _ in features)
        return self._kept[known]

    def _images(self, index: np.ndarray, domain: Domain) -> Tensor:
        return self.data.test_images(domain, index)

    def _features(self, model: Model, index: np.ndarray, domain: Domain) -> Batch:
        images = self._images(index, domain)
        start = time.perf_counter()
        with torch.no_grad():
            z = model.features(images)
        return z, time.perf_counter() - start


def seed_everything(text: str) -> None:
    """Seed the global generators, for plugins that use them, from where we are in the grid."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def _record(cell: Cell, status: str) -> Record:
    return {"kind": "domain", "key": cell.key, "status": status}


def _failure(cell: Cell) -> Record:
    """Whatever a plugin raised is this cell's result, and no other cell's."""
    return _record(cell, "failed") | {"reason": traceback.format_exc()}
