"""A cell on its way through the stream: adapt, score, and stop or go on anywhere, bit for bit."""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tta_bench import tree
from tta_bench.api import Domain, Method, Model, Source
from tta_bench.exchange import Checkpoint, Policy, Start
from tta_bench.feed import Batch, Feed
from tta_bench.grid import Cell
from tta_bench.isolation import settings_kept
from tta_bench.limits import within
from tta_bench.memory import Meter
from tta_bench.plan import forgets, repeats
from tta_bench.score import Score
from tta_bench.store import Record


@dataclass
class Tally:
    """What one domain has come to so far."""

    score: Score = field(default_factory=Score)
    seconds: float = 0.0
    forward_images: int = 0
    backward_images: int = 0
    skipped_updates: int = 0
    skipped_reasons: dict[str, int] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """The counts as plain data."""
        return vars(self) | {"score": self.score.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from such counts."""
        self.score.load_state_dict(state["score"])
        vars(self).update(state | {"score": self.score})


class Lane:
    """One cell, its method and its model. A domain of one round is a place; places count from 0."""

    def __init__(
        self, cell: Cell, method: Method, model: Model, policy: Policy, start: Start, meter: Meter
    ) -> None:
        self.cell, self.method, self.model = cell, method, model
        self.policy, self.start, self.meter = policy, start, meter
        self.backbone: Model | None = None  # makes the features of a method that consumes them
        self.same_rounds, self.forgets = repeats(cell, method), forgets(cell, method)
        self.repeats = policy.share and self.same_rounds
        # Without a state of its own, a method that remembers can only start where it has forgotten.
        self.restorable = method.memory != "stream" or type(method).state_dict is not Method.state_dict
        self.places = len(cell.domains) * (1 if self.repeats else cell.rounds)
        self.spent_seconds = 0.0
        self.over = False

    def setup(self, source: Source) -> None:
        """Give the method its model and the clean images; passes of the setup are not counted."""
        seed_everything(self.cell.key)
        with settings_kept(f"method {self.cell.method.use}"), torch.no_grad():
            self.method.setup(self.model, source)

    def wants(self, place: int) -> bool:
        """Whether this domain has still to be run."""
        return not self.over and place < self.places and place not in self.start.finished

    def run(self, place: int, feed: Feed, stop: Callable[[], bool]) -> Iterator[Checkpoint | Record]:
        """Adapt to and score one domain: checkpoints on the way, the record at the end unless stopped."""
        round, domain = self.where(place, feed)
        labels = feed.labels(round, domain)
        first, tally = self._begin(place, round, domain)
        batches = self._batches(feed, round, domain, first)
        saved = time.monotonic()
        for done, target in enumerate(labels[first:], first + 1):
            self._step(batches, target, tally)
            stopped = stop()
            if done < len(labels) and (stopped or time.monotonic() - saved > self.policy.checkpoint_seconds):
                if self.restorable:
                    yield self._inside(place, done, tally)
                if stopped:
                    return
                saved = time.monotonic()
        counts = {k: v for k, v in vars(tally).items() if k != "score"}
        yield tally.score.summary() | counts | self._counters()

    def _counters(self) -> Record:
        """The method's own counts, if it has any."""
        counters = {str(name): int(count) for name, count in self.method.counters().items()}
        if any(count < 0 for count in counters.values()):
            raise ValueError(f"the method counts below zero: {counters}")
        return {"counters": counters} if counters else {}

    def _batches(self, feed: Feed, round: int, domain: Domain, first: int) -> Iterator[Batch]:
        if self.backbone is None:
            return feed.images(round, domain, first, self.model.device)
        return feed.features(self.backbone, round, domain, first)

    def where(self, place: int, feed: Feed) -> tuple[int, Domain]:
        """Round (from 1) and domain of a place."""
        turn, index = divmod(place, len(feed.stream.domains))
        return turn + 1, feed.stream.domains[index]

    def after(self, place: int) -> Checkpoint | None:
        """The checkpoint at a domain's end; what forgets, or is done, has nothing to keep."""
        if self.forgets or not self.restorable or place + 1 == self.places:
            return None
        return self._checkpoint(place + 1, 0, {"method": self.method.state_dict()})

    @property
    def seconds_left(self) -> float | None:
        """What is left of the cell's time."""
        limit = self.policy.cell_seconds
        return None if limit is None else limit - self.spent_seconds

    def _begin(self, place: int, round: int, domain: Domain) -> tuple[int, Tally]:
        """Bring everything to where the domain starts, or to where it was left."""
        tally, checkpoint = Tally(), self.start.checkpoint
        saved: dict[str, Any] = {}
        if checkpoint is not None and checkpoint.place == place:
            saved = tree.decode(checkpoint.content)
            self.method.load_state_dict(tree.placed(saved["method"], self.model.device))
        if "tally" in saved:
            tally.load_state_dict(saved["tally"])
            restore_generators(saved["generators"])
            assert checkpoint is not None
            return checkpoint.batch, tally
        # Rounds that must be equal draw the same numbers, whether they are computed or copied.
        turn = 1 if self.same_rounds else round
        seed_everything(f"{self.cell.key}/{turn}/{domain}")
        if self.cell.reset == "domain":
            self.method.reset()
        return 0, tally

    def _step(self, batches: Iterator[Batch], target: Tensor, tally: Tally) -> None:
        """One batch: read it, adapt to it, score it."""
        start = time.perf_counter()
        try:
            with within(self.seconds_left), settings_kept(f"method {self.cell.method.use}"):
                batch, load_seconds = next(batches)
                passes = (self.model.passes.forward_images, self.model.passes.backward_images)
                skipped, reasons = self.method.skipped_updates, self.method.skipped_reasons
                begun = time.perf_counter()
                with torch.no_grad():
                    # To the CPU before the clock is read: a GPU answers before it is done.
                    output = self.method.step(batch).detach().cpu()
                tally.seconds += time.perf_counter() - begun + load_seconds
        finally:
            self.spent_seconds += time.perf_counter() - start
        expected = (len(target), self.model.num_classes)
        if output.shape != expected:
            raise ValueError(f"the method answered with shape {tuple(output.shape)}, not {expected}")
        tally.score.add(output, target, self.method.outputs)
        tally.skipped_updates += self.method.skipped_updates - skipped
        new = Counter(self.method.skipped_reasons) - Counter(reasons)
        tally.skipped_reasons = dict(Counter(tally.skipped_reasons) + new)
        if self.method.consumes == "features":  # the shared pass is one that it needs for itself
            tally.forward_images += len(target)
        else:
            tally.forward_images += self.model.passes.forward_images - passes[0]
            tally.backward_images += self.model.passes.backward_images - passes[1]

    def _inside(self, place: int, batch: int, tally: Tally) -> Checkpoint:
        """A checkpoint before batch number `batch` of a domain."""
        state = {"method": self.method.state_dict(), "tally": tally.state_dict(), "generators": generators()}
        return self._checkpoint(place, batch, state)

    def _checkpoint(self, place: int, batch: int, state: dict[str, Any]) -> Checkpoint:
        return Checkpoint(self.cell.key, place, batch, tree.encode(state))


def seed_everything(text: str) -> None:
    """Seed the global generators, for plugins that use them, from where we are in the grid."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
    if torch.cuda.is_initialized():
        torch.manual_seed(seed)
    else:  # a hundredth of the time, which counts where domains are small
        torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def generators() -> dict[str, Any]:
    """The states of the global generators."""
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {
        "torch": torch.get_rng_state(),
        "cuda": gpus,
        "numpy": np.random.get_state(),
        "python": random.getstate(),
    }


def restore_generators(states: dict[str, Any]) -> None:
    """Put back what `generators` returned."""
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_initialized() and len(states.get("cuda", [])) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
    np.random.set_state(states["numpy"])
    random.setstate(states["python"])
