"""A cell's way through its stream: adapt to every batch, score it, and save or restore its state anywhere."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tta_bench.api import Method, Model, Source, Stream
from tta_bench.execution.cell.adaptation import Adaptation
from tta_bench.execution.cell.tally import Tally
from tta_bench.execution.messages import RunPolicy, Start
from tta_bench.execution.stream_reader import Batch, StreamReader, Targets
from tta_bench.execution.time_limit import within
from tta_bench.footprint.account import Meter
from tta_bench.planning.sharing import ResolvedCell
from tta_bench.plugins.isolation import settings_kept
from tta_bench.storage import codec
from tta_bench.storage.checkpoints import Checkpoint
from tta_bench.storage.record import Record


class CellRun:
    """One cell with its own method and model. A position is a segment's number, counted over all rounds."""

    def __init__(
        self,
        resolved: ResolvedCell,
        method: Method,
        model: Model,
        policy: RunPolicy,
        start: Start,
        meter: Meter,
    ) -> None:
        self.resolved, self.cell, self.method, self.model = resolved, resolved.cell, method, model
        self.policy, self.start, self.meter = policy, start, meter
        self.adaptation = Adaptation(self.cell, method)
        self.backbone: Model | None = None  # computes the features of a method that reads features
        self.spent_seconds = 0.0
        self.over = False

    def setup(self, source: Source) -> None:
        """Give the method its model and the clean images; passes of the setup are not counted."""
        seed_everything(self.cell.key)
        with settings_kept(f"method {self.cell.method.use}"), torch.no_grad():
            self.method.setup(self.model, source)

    def wants(self, position: int) -> bool:
        """Whether this segment has still to be run."""
        return not self.over and position < self.resolved.positions and position not in self.start.finished

    def run(
        self, position: int, reader: StreamReader, stop: Callable[[], bool]
    ) -> Iterator[Checkpoint | list[Record]]:
        """Adapt to one segment and score it: yields checkpoints, then its results unless it was stopped."""
        round, index = self.resolved.at(position)
        targets = reader.targets(round, index)
        first, tally = self._begin(position, reader.stream)
        if self.backbone is None:
            batches = reader.images(round, index, first, self.model.device)
        else:
            batches = reader.features(self.backbone, round, index, first)
        saved = time.monotonic()
        for done, target in enumerate(targets[first:], first + 1):
            self._step(batches, target, tally)
            stopped = stop()
            if done < len(targets) and (stopped or time.monotonic() - saved > self.policy.checkpoint_seconds):
                if self.resolved.resumable:
                    inside = {"tally": tally.state_dict(), "generators": generators()}
                    inside |= self.adaptation.state_dict()
                    yield self._checkpoint(position, done, inside)
                if stopped:
                    return
                saved = time.monotonic()
        counters = self._counters()
        yield [result | counters for result in tally.results()]

    def _counters(self) -> Record:
        """The method's own counts, if it has any."""
        counters = {str(name): int(count) for name, count in self.method.counters().items()}
        if any(count < 0 for count in counters.values()):
            raise ValueError(f"the method counts below zero: {counters}")
        return {"counters": counters} if counters else {}

    def after(self, position: int) -> Checkpoint | None:
        """The checkpoint at a segment's end; None if no later segment needs the state of the method."""
        last = position + 1 == self.resolved.positions
        if last or self.resolved.stateless or not self.resolved.resumable:
            return None
        return self._checkpoint(position + 1, 0)

    def _begin(self, position: int, stream: Stream) -> tuple[int, Tally]:
        """Restore the state at the start of a segment, or inside it; returns next batch and counts."""
        segment, (round, index) = self.resolved.segment(position), self.resolved.at(position)
        before = 0 if self.cell.reset_every is None else stream.batches_before(round, index)
        tally, checkpoint = Tally.of(len(segment.visits)), self.start.checkpoint
        saved: dict[str, Any] = {}
        if checkpoint is not None and checkpoint.position == position:
            saved = codec.decode(checkpoint.content)
            self.method.load_state_dict(codec.placed(saved["method"], self.model.device))
        if "tally" in saved:
            tally.load_state_dict(saved["tally"])
            restore_generators(saved["generators"])
            assert checkpoint is not None
            window = codec.placed(saved.get("window"), self.model.device)
            self.adaptation.begin(checkpoint.batch, before, window, saved.get("arrived", checkpoint.batch))
            return checkpoint.batch, tally
        # Equal rounds draw the same random numbers, whether they are computed or repeated.
        seed_everything(f"{self.cell.key}/{1 if self.resolved.equal_rounds else round}/{segment.name}")
        self.adaptation.begin(0, before)
        return 0, tally

    def _step(self, batches: Iterator[Batch], targets: Targets, tally: Tally) -> None:
        """Read one batch, adapt to it and score it."""
        start, limit = time.perf_counter(), self.policy.cell_seconds
        left = None if limit is None else limit - self.spent_seconds
        try:
            with within(left), settings_kept(f"method {self.cell.method.use}"):
                batch, load_seconds = next(batches)
                passes = (self.model.passes.forward_images, self.model.passes.backward_images)
                skipped, reasons = self.method.skipped_updates, self.method.skipped_reasons
                begun = time.perf_counter()
                with torch.no_grad():
                    # Copied to the CPU before the clock is read: a GPU returns before it has computed.
                    output = self.adaptation.output(batch).detach().cpu()
                tally.seconds += time.perf_counter() - begun + load_seconds
        finally:
            self.spent_seconds += time.perf_counter() - start
        images = len(targets.labels)
        expected = (images, self.model.num_classes)
        if output.shape != expected:
            raise ValueError(f"the method answered with shape {tuple(output.shape)}, not {expected}")
        tally.add(output, targets, self.method.outputs)
        new = Counter(self.method.skipped_reasons) - Counter(reasons)
        tally.skipped(self.method.skipped_updates - skipped, new)
        if self.method.consumes == "features":  # the shared pass counts for every cell that reads it
            tally.forward_images += images
        else:
            tally.forward_images += self.model.passes.forward_images - passes[0]
            tally.backward_images += self.model.passes.backward_images - passes[1]

    def _checkpoint(self, position: int, batch: int, inside: Record | None = None) -> Checkpoint:
        """A checkpoint before batch number `batch` of a segment; `inside` is the state within it."""
        state = {"method": self.method.state_dict()} | (inside or {})
        return Checkpoint(self.cell.key, position, batch, codec.encode(state))


def seed_everything(text: str) -> None:
    """Seed the global random generators, for plugins that use them."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
    if torch.cuda.is_initialized():
        torch.manual_seed(seed)
    else:  # a hundred times faster, which matters for small domains
        torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def generators() -> dict[str, Any]:
    """The states of the global random generators."""
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {
        "torch": torch.get_rng_state(),
        "cuda": gpus,
        "numpy": np.random.get_state(),
        "python": random.getstate(),
    }


def restore_generators(states: dict[str, Any]) -> None:
    """Restore what `generators` returned."""
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_initialized() and len(states.get("cuda", [])) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
    np.random.set_state(states["numpy"])
    random.setstate(states["python"])
