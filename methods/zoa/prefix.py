"""The frozen first part of the network, which the 1 + q passes over a batch have in common."""

from __future__ import annotations

from torch import Tensor

from tta_bench.api import Model
from tta_bench_methods._shared.shift_detection import channel_statistics


class FrozenPrefix:
    """One batch after the stem and the blocks in front of the first adapted one.

    If `shared`, all passes start from the same hidden state, which is kept for them. Otherwise each pass
    computes its own: the numbers are the same, and the memory is free as soon as the next block is done.
    """

    def __init__(self, model: Model, start: int, x: Tensor, shared: bool) -> None:
        self.model, self.start, self.x, self.shared = model, start, x, shared
        self.hidden: Tensor | None = None  # what the first adapted block reads
        self._compute_()

    def _compute_(self) -> None:
        embedded = self.model.stem(self.x)
        self.statistics = channel_statistics(self.model.stem_samples(embedded))
        hidden, layers = self.model.enter(embedded), []
        del embedded  # often the largest of all tensors
        for index, block in enumerate(self.model.blocks[: self.start]):
            hidden = block(hidden)
            # The last of them is read through an adapted norm, so `forward` reads it.
            if index < self.start - 1:
                layers.append(self.model.probe(index, hidden))
        self.layers = [z for z in layers if z is not None]  # features before the first adapted parameter
        self.hidden = hidden

    def forward(self) -> tuple[list[Tensor], Tensor]:
        """The features of all layers and z, with the adapted parameters as they are now."""
        if self.hidden is None:
            self._compute_()
        border = self.model.probe(self.start - 1, self._hidden_(keep=True))
        layers, z = self.model.continue_from(self._hidden_(keep=self.shared), self.start)
        return [*self.layers, *([] if border is None else [border]), *layers], z

    def _hidden_(self, keep: bool) -> Tensor:
        """The hidden state; unless it is kept, the caller has the only reference to it."""
        hidden = self.hidden
        assert hidden is not None
        self.hidden = hidden if keep else None
        return hidden
