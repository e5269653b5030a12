"""Test-time adaptation methods, and the clean source images that they may use."""

from __future__ import annotations

import copy
import inspect
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from tta_bench.api.model import Model, Target
from tta_bench.api.plugin import Plugin
from tta_bench.errors import Unsupported, UserError
from tta_bench.plugins.search_space import Spaces, spaces


class Source:
    """Clean, unlabelled images of the training domain, which a method may use before the stream.

    They are kept in main memory; `batches` moves them to the device, one batch at a time.
    """

    def __init__(self, images: Tensor, batch_size: int = 64, device: torch.device | str = "cpu") -> None:
        self.images, self.batch_size, self.device = images, batch_size, device

    def batches(self) -> Iterator[Tensor]:
        """Yield the clean images in batches; raise Unsupported if there are none."""
        if not len(self.images):
            raise Unsupported("needs clean images, and the data has none")
        for batch in self.images.split(self.batch_size):
            yield batch.to(self.device)

    def first(self, count: int) -> Source:
        """A source of at most `count` of the images."""
        return Source(self.images[:count], self.batch_size, self.device)

    @torch.no_grad()
    def layer_statistics(
        self, model: Model, prompt: Tensor | None = None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Mean and unbiased standard deviation of every layer feature over the clean images.

        Computed in float64, so that they do not depend on the order in which a library adds.
        """
        rows = [model.continue_from(model.enter(model.stem(x, prompt)))[0] for x in self.batches()]
        layers = [torch.cat(parts) for parts in zip(*rows, strict=True)]
        means = [z.double().mean(0).to(z) for z in layers]
        return means, [z.double().std(0).to(z) for z in layers]

    @torch.no_grad()
    def feature_mean(self, model: Model) -> Tensor:
        """Mean of z over the clean images."""
        z = torch.cat([model.features(x) for x in self.batches()])
        return z.double().mean(0).to(z)


class Method(Plugin):
    """A test-time adaptation method. It sees images and its model: no labels, domains or files.

    `consumes` says what `step` receives: images, or the features z of one ordinary pass (which the
    harness then shares between methods). `memory` says what a prediction depends on: the sample alone
    (`none`), the batch it came in (`batch`), or the whole stream before it (`stream`).

    A method whose state grows over many batches may define `fill()`, which brings the state to its full
    size with arbitrary values; bytes are counted after it.
    """

    family: ClassVar[str] = "learning-free"
    summary: ClassVar[str] = ""
    backprop: ClassVar[bool] = False
    replaces_norms: bool = False  # puts other layers in the place of norm layers, or hooks on them
    consumes: Literal["images", "features"] = "images"
    outputs: ClassVar[Literal["logits", "probabilities"]] = "logits"
    memory: Literal["none", "batch", "stream"] = "stream"
    search_space: ClassVar[Spaces] = spaces()  # where `tta-bench tune` looks for its parameters
    forwards: ClassVar[int] = 1  # passes of a batch, for plans; records count the passes that were made
    backwards: ClassVar[int] = 0
    passes_shown: ClassVar[str] = ""  # text for `list --long` where passes vary, e.g. "≤2/≤1"
    needs: ClassVar[str] = "-"
    # Streams of smaller batches are refused. A smaller last batch is predicted without learning from it.
    min_batch_size: int = 1
    min_batch_reason: ClassVar[str] = ""  # the reason if it is more than one image
    gathers: int = 0  # images per step; smaller batches of the stream are joined. 0: batches as they come

    model: Model
    skipped_updates: int = 0  # updates that were skipped, e.g. because a loss was not finite
    skipped_reasons: Mapping[str, int] = MappingProxyType({})  # count per reason; see `skip`

    def __init_subclass__(cls, **facts: Any) -> None:
        super().__init_subclass__(**facts)
        if "cost" in vars(cls) and "cost" not in inspect.get_annotations(cls):
            raise UserError(
                f"{cls.__name__}: `cost` is not read. Write the passes of a batch as two whole numbers, "
                "e.g. forwards = 2 and backwards = 1; if they depend on parameters, define passes()."
            )

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        """Defaults that depend on the model; they are filled in before the cell's key is made."""
        return {}

    def unsupported(self, model: Model) -> str | None:
        """Why this method cannot run on this model, or None; asked before any data is read."""
        if self.backprop and not model.differentiable:
            return f"needs gradients, which {model.name} {model.bits} does not have: it is quantised"
        if self.replaces_norms and model.norms_in_graph:
            return (
                f"replaces norm layers, and the engine of {model.name} {model.bits} computes them itself; "
                "engine torch-int8 does not"
            )
        return None

    def refuses_batch(self, batch_size: int) -> str | None:
        """Why this method cannot adapt to batches of this size, or None; asked before any data is read."""
        if batch_size >= self.min_batch_size:
            return None
        why = f": {self.min_batch_reason}" if self.min_batch_reason else ""
        return f"needs batches of at least {self.min_batch_size} images, and they have {batch_size}{why}"

    def skip(self, reason: str) -> None:
        """Count a skipped update; `reason` is a few words for records and footnotes."""
        self.skipped_updates += 1
        self.skipped_reasons = {**self.skipped_reasons, reason: self.skipped_reasons.get(reason, 0) + 1}

    def counters(self) -> dict[str, int]:
        """Counts since the last reset, for records; read at the end of every domain.

        A count that changes with the stream must be in `state_dict`, too.
        """
        return {}

    def passes(self) -> tuple[int, int]:
        """Forward and backward passes per batch; where they vary, the fewest of an adapting batch."""
        return self.forwards, self.backwards

    def batch_statistics(self, model: Model) -> bool:
        """Whether BatchNorm layers use batch statistics when the harness makes this method's features."""
        return False

    def setup(self, model: Model, source: Source) -> None:
        """Keep the model, which no other method uses, and compute what is needed from the clean images."""
        self.model = model

    @abstractmethod
    def step(self, x: Tensor) -> Tensor:
        """Predict this batch (logits or probabilities, as `outputs` says) and adapt."""

    def predict(self, x: Tensor) -> Tensor:
        """Predict this batch without adapting to it; called between steps by `adapt_every` and `window`.

        Unless a method has its own, this takes a step and restores the state: it costs as much as a step, and
        a copy of the state. A method whose answer is known before it adapts should override it.
        """
        if self.memory != "stream":  # a step changes nothing
            return self.step(x)
        state = copy.deepcopy(self.state_dict())
        skipped = self.skipped_updates, self.skipped_reasons
        output = self.step(x)
        self.load_state_dict(state)
        self.skipped_updates, self.skipped_reasons = skipped
        return output

    @abstractmethod
    def reset(self) -> None:
        """Return to the state after `setup`."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the stream has changed, as tensors and plain data, to continue bit for bit."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of `state_dict`. Its tensors are on the model's device; byte tensors (the
        states of generators) are in main memory."""


def passes_per_batch(method: Method) -> tuple[int, int]:
    """What `method.passes()` declares; UserError unless these are two whole numbers."""
    found: Any = method.passes()
    if not (isinstance(found, tuple) and len(found) == 2 and all(type(n) is int and n >= 0 for n in found)):
        raise UserError(
            f"{type(method).__name__}: passes() gives {found!r}, which is not the number of forward and of "
            "backward passes per batch. Return two whole numbers, e.g. (2, 1)."
        )
    return found
