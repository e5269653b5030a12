"""When a method is reset, adapts or only predicts: `reset`, `adapt_every` and `window` of a stream."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tta_bench.api import Method
from tta_bench.errors import Unsupported
from tta_bench.grid import Cell


class Adaptation:
    """Passes the batches of a stream to a method, at the rate and with the resets that its cell asks for."""

    def __init__(self, cell: Cell, method: Method) -> None:
        self.cell, self.method = cell, method
        self.number = 0  # of the next batch in its segment
        self.before = 0  # batches of the stream before this segment
        self.window: Tensor | None = None  # the last images, or their features
        self.arrived = 0  # how many images have entered the window since it was empty

    def refuse_if_impossible(self, batch_statistics: bool) -> None:
        """Raise Unsupported if the method cannot predict without adapting as this stream needs it."""
        rate = self.cell.adapt_every > 1 or self.cell.window > 1
        if rate and not can_predict(self.method):
            raise Unsupported("cannot predict without adapting: it has neither state_dict() nor predict()")
        if self.cell.window > 1 and batch_statistics and self.method.consumes == "features":
            raise Unsupported(
                "its features are normalised by the batch, and batches in a window have one image"
            )

    def begin(self, number: int, before: int, window: Tensor | None = None, arrived: int = 0) -> None:
        """Start or continue a segment at batch `number`; `before` counts the batches of earlier segments."""
        self.number, self.before, self.window, self.arrived = number, before, window, arrived
        if self.cell.reset == "domain" and number == 0:
            self.method.reset()

    def output(self, x: Tensor) -> Tensor:
        """The method's answer to one batch."""
        every = self.cell.reset_every
        if every is not None and (self.before + self.number) % every == 0:
            self.method.reset()
            self.window, self.arrived = None, 0
        self.number += 1
        if self.cell.window > 1:
            return self._in_window(x)
        adapts = (self.number - 1) % self.cell.adapt_every == 0
        return self.method.step(x) if adapts else self.method.predict(x)

    def state_dict(self) -> dict[str, Any]:
        """What must be saved inside a segment, besides the state of the method."""
        return {"window": self.window, "arrived": self.arrived}

    def _in_window(self, image: Tensor) -> Tensor:
        """The answer to one image: adapt to the last images whenever so many new ones have come.

        A network with BatchNorm predicts from all images in the window, others from the image alone.
        """
        size, place = self.cell.window, self.arrived % self.cell.window
        self.arrived += 1
        if self.window is None or len(self.window) < size:
            self.window = image.clone() if self.window is None else torch.cat([self.window, image])
        else:
            self.window[place] = image[0]
        if self.arrived % size == 0:
            return self.method.step(self.window.clone())[place : place + 1]
        if self.method.consumes == "images" and self.method.model.batch_norms():
            return self.method.predict(self.window.clone())[place : place + 1]
        return self.method.predict(image)


def can_predict(method: Method) -> bool:
    """Whether a method can predict without adapting."""
    own = type(method).predict is not Method.predict
    return own or method.memory != "stream" or type(method).state_dict is not Method.state_dict
