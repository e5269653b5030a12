"""Runs one task in this process: build, quantise, adapt, score; a record for every round and domain."""

from __future__ import annotations

import hashlib
import json
import platform
import socket
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import version

import torch

from tta_bench.api import Domain, Method, Model, Source, Visit
from tta_bench.errors import Unsupported
from tta_bench.execution.cell.adaptation import Adaptation
from tta_bench.execution.cell.cell_run import CellRun
from tta_bench.execution.messages import Delivery, RunPolicy, Start, StopRequested
from tta_bench.execution.model_cache import ModelCache
from tta_bench.execution.process import choose_device, device_name, keep_freed_memory
from tta_bench.execution.stream_reader import StreamReader
from tta_bench.execution.time_limit import TimeLimit, within
from tta_bench.footprint import account, cache
from tta_bench.grid import Cell
from tta_bench.planning.sharing import ResolvedCell
from tta_bench.plugins.identity import code_of
from tta_bench.plugins.isolation import settings_kept
from tta_bench.storage.checkpoints import Checkpoint
from tta_bench.storage.record import Record

# Whatever a plugin raises fails its own cell and no other; so does a call of exit().
BROKEN = (Exception, SystemExit, TimeLimit)


class Executor:
    """Runs tasks one after the other, and keeps data and models that the next one may need."""

    def __init__(self, policy: RunPolicy | None = None) -> None:
        self.policy = policy or RunPolicy()
        torch.set_num_threads(self.policy.threads)
        keep_freed_memory()
        self.models = ModelCache(choose_device(self.policy.device))

    def prepare(self, cell: Cell, domain: Domain) -> None:
        """Make the images of a domain available."""
        data = self.models.data(cell.data)
        data.prepare(domain, cell.count(len(data.test_labels())))

    def run(
        self,
        cells: Sequence[ResolvedCell],
        starts: Sequence[Start] | None = None,
        stop: StopRequested = lambda: False,
    ) -> Iterator[Delivery]:
        """Records and checkpoints as they are made, each cell from its own start, until the end or `stop`."""
        runs: list[CellRun] = []
        for resolved, start in zip(cells, starts or [Start()] * len(cells), strict=True):
            if stop():
                return
            cell = resolved.cell
            try:
                run = self._open(resolved, start, runs)
                description = self._description(run)
            except Unsupported as reason:
                yield Delivery(cell.key, [_record(cell, "unsupported") | {"reason": str(reason)}])
            except BROKEN:
                yield Delivery(cell.key, [_failure(cell)])
            else:
                runs.append(run)
                yield Delivery(cell.key, description=description)
        if runs:
            yield from self._stream(runs, stop)

    def _open(self, resolved: ResolvedCell, start: Start, others: Sequence[CellRun]) -> CellRun:
        """Set up a cell with a model of its own; only the network that computes features is shared."""
        cell = resolved.cell
        begun, meter = time.perf_counter(), account.Meter(self.models.device)
        check_code(cell)
        with within(self.policy.cell_seconds), meter.watching():
            method: Method = cell.method.make()
            model = self._model(cell, method)
            reason = method.unsupported(model) or method.refuses_batch(cell.step_images)
            if reason is not None:
                raise Unsupported(reason)
            Adaptation(cell, method).refuse_if_impossible(method.batch_statistics(model))
            run = CellRun(resolved, method, model, self.policy, start, meter)
            images = self.models.source_images(cell.data)
            run.setup(Source(images, cell.step_images, self.models.device))
        if resolved.reads_features:
            wanted = method.batch_statistics(model)
            having = (other for other in others if other.backbone is not None)
            same = (each.backbone for each in having if each.method.batch_statistics(each.model) == wanted)
            run.backbone = next(same, None) or self._model(cell, method)
        run.spent_seconds = time.perf_counter() - begun
        meter.peak_bytes = 0  # only steps count, not the setup
        return run

    def _model(self, cell: Cell, method: Method) -> Model:
        """A copy of the cell's model, with batch statistics if the method wants its features made so."""
        with settings_kept(f"model {cell.model.use} or quantizer {cell.quantizer.use}"):
            model = self.models.model(cell)
            if method.consumes == "features" and method.batch_statistics(model):
                model.use_batch_statistics()
        return model

    def _stream(self, runs: list[CellRun], stop: StopRequested) -> Iterator[Delivery]:
        """Run all cells segment by segment, so that they can share the features of each."""
        cell = runs[0].cell
        try:
            keep = any(run.resolved.rereads for run in runs)
            reader = StreamReader(self.models.data(cell.data), cell, runs[0].model.num_classes, keep)
        except BROKEN:
            yield from [Delivery(run.cell.key, [_failure(run.cell)]) for run in runs]
            return
        for position in range(max(run.resolved.positions for run in runs)):
            for run in runs:
                if run.wants(position):
                    complete = yield from self._segment(run, position, reader, stop)
                    if not complete or stop():
                        return

    def _segment(
        self, run: CellRun, position: int, reader: StreamReader, stop: StopRequested
    ) -> Generator[Delivery, None, bool]:
        """Run one segment of one cell; False if it was stopped before its end."""
        cell, results = run.cell, None
        round, index = run.resolved.at(position)
        visits = run.resolved.segment(position).visits
        places = [{"round": round} | _place(visit) for visit in visits]
        where = places[0] if len(places) == 1 else {"round": round}  # of a failure
        try:
            with run.meter.watching():
                for found in run.run(position, reader, stop):
                    if isinstance(found, Checkpoint):
                        yield Delivery(cell.key, checkpoint=found)
                    else:
                        results = found
            if results is None:
                return False
            origin = self._origin(cell, reader.stream.fingerprint(round, index, cell.data.fingerprint))
            records = [
                each
                for place, result in zip(places, results, strict=True)
                for each in _with_repetitions(_record(cell, "ok") | place | result | origin, run.resolved)
            ]
            last = position + 1 == run.resolved.positions
            counted = self._counted(run) if last else None
            yield Delivery(cell.key, records, run.after(position), counted)
        except BROKEN:
            run.over = True
            yield Delivery(cell.key, [_failure(cell) | where])
        return True

    def _counted(self, run: CellRun) -> Record | None:
        """The peak of memory that CUDA reports at the end of a cell."""
        return {"measured_bytes": run.meter.peak_bytes} if run.meter.peak_bytes else None

    def _origin(self, cell: Cell, fingerprint: str) -> Record:
        """Which stream a cell has seen, and where."""
        seen = {"uses_labels": True} if cell.schedule.scenario.uses_labels else {}
        return {"fingerprint": fingerprint, "environment": self.environment_id} | seen

    def _description(self, run: CellRun) -> Record:
        """Facts of the whole cell: environment, code and, unless known already, the memory of a step."""
        cell = run.cell
        data = self.models.data(cell.data)
        notes = [data.note(), *map(data.domain_note, cell.visited)]
        described: Record = {
            "weights_sha256": cell.model.fingerprint,
            "data_note": "; ".join(dict.fromkeys(filter(None, notes))),
            "code": {plugin.label: plugin.code for plugin in cell.plugins},
            "environments": {self.environment_id: self.environment},
        }
        if (agreement := self.models.agreement(cell)) is not None:
            facts = {name: value for name, value in asdict(agreement).items() if value is not None}
            described["engine"] = {"name": cell.quantizer.params["engine"], **facts}
        if (added := self.models.added_bytes(cell)) is not None:
            described["model_resident_bytes"] = added
        if run.start.described:
            return described
        report = cache.of(cell)
        return described | {"memory_bytes": report.memory_bytes, "packed_bytes": report.packed_bytes}

    @cached_property
    def environment(self) -> Record:
        """Versions and hardware, which may change how sums are rounded."""
        return {
            "versions": {name: version(name) for name in ("tta-bench", "torch", "timm", "numpy")},
            "device": device_name(self.models.device),
            "cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
            "host": f"{socket.gethostname()}, {platform.machine()}, Python {platform.python_version()}",
        }

    @cached_property
    def environment_id(self) -> str:
        """A hash of the environment, which every record carries."""
        return hashlib.sha256(json.dumps(self.environment, sort_keys=True).encode()).hexdigest()[:8]


def check_code(cell: Cell) -> None:
    """Raise if a plugin's code in this process differs from the code with which the run was planned."""
    for plugin in cell.plugins:
        if code_of(plugin.group, plugin.use) != plugin.code:
            raise RuntimeError(
                f"{plugin.label}: its code in this process is not the code that the run started "
                "with: it was edited meanwhile, or this machine has another version. Start the run again."
            )


def _record(cell: Cell, status: str) -> Record:
    return {"key": cell.key, "status": status, "code": cell.code}


def _place(visit: Visit) -> Record:
    """Which domain a record is about and, if its round comes to the domain several times, which visit."""
    domain = {"corruption": visit.domain.corruption, "severity": visit.domain.severity}
    return domain | ({"visit": visit.number} if visit.of > 1 else {})


def _with_repetitions(record: Record, resolved: ResolvedCell) -> list[Record]:
    """A record and, if rounds repeat, one for each later round."""
    round = record["round"]
    later = range(round + 1, resolved.cell.rounds + 1) if resolved.repeats else ()
    return [record, *(record | {"round": each, "repeats": round} for each in later)]


def _failure(cell: Cell) -> Record:
    return _record(cell, "failed") | {"reason": traceback.format_exc()}
