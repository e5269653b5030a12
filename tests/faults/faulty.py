"""Plugins that misbehave on purpose. `conftest` puts them on the path with entry points of their own."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tta_bench.api import Data, Domain, Method, Model, Source
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.models.micro import ResNetMicro


@dataclass
class Drift(Method):
    """Every answer depends on every batch before it and on all three global generators.

    A stream that is cut and continued gives the same numbers only if all of that was carried over.
    """

    fault: str = "none"
    at: int = 0  # which batch of the stream, counted from 1
    once: str = ""  # a file that is made by the first fault and prevents the next
    pause: float = 0.0  # seconds a batch
    gate: str = ""  # a file: batch `at` waits until it exists, after the fault

    def setup(self, model: Model, source: Source) -> None:
        self.model = model
        self.reset()

    def step(self, x: Tensor) -> Tensor:
        if type(x) is not Tensor:  # bytes are being counted, on tensors without values
            return self.logits(x)
        time.sleep(self.pause)
        self.batches += 1
        if self.batches == self.at and not (self.once and Path(self.once).exists()):
            if self.once:
                Path(self.once).touch()
            FAULTS[self.fault]()
        while self.batches == self.at and self.gate and not Path(self.gate).exists():
            time.sleep(0.05)
        noise = torch.rand(1).item() + np.random.rand() + random.random()
        logits = self.logits(x)
        self.mean = 0.9 * self.mean + 0.1 * logits.mean(0)
        return logits + 8 * noise * self.mean

    def logits(self, x: Tensor) -> Tensor:
        return self.model(x)

    def reset(self) -> None:
        self.batches, self.mean = 0, torch.zeros(self.model.num_classes)

    def state_dict(self) -> dict[str, Any]:
        return {"batches": self.batches, "mean": self.mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.batches, self.mean = state["batches"], state["mean"]


class FeatureDrift(Drift):
    """The same on features, in one task with others that read them."""

    consumes = "features"

    def logits(self, x: Tensor) -> Tensor:
        return self.model.head(x)


class Unsaved(Drift):
    """Remembers the stream, but has not learnt to save what it remembers."""

    state_dict = Method.state_dict
    load_state_dict = Method.load_state_dict


class Unsavable(Drift):
    """Hands out a state that is no plain data."""

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model}


class Miscounts(Drift):
    """Answers with one row, whatever it was asked."""

    def step(self, x: Tensor) -> Tensor:
        return self.model(x)[:1]


def _raise() -> None:
    raise RuntimeError("out of luck")


def _hang() -> None:
    while True:
        time.sleep(3600)


def _stuck() -> None:
    """Hang where no alarm reaches: as a deadlock in a library does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    _hang()


def _exhaust() -> None:
    """Ask for more than the process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + 2**28, hard))
    try:
        torch.empty(2**30, dtype=torch.uint8)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


FAULTS = {
    "none": lambda: None,
    "raise": _raise,
    "hang": _hang,
    "stuck": _stuck,
    "memory": _exhaust,
    "exit": lambda: sys.exit(3),
    "vanish": lambda: os._exit(3),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),  # what the kernel does when memory runs out
}


class NanModel(ResNetMicro):
    """A network with a weight that is not a number."""

    def build(self) -> Model:
        model = super().build()
        model.classifier.weight[3, 0] = float("nan")
        return model


class SmallSource(Cifar10Mini):
    """Few clean images, so that setting up a method takes no time."""

    def clean_source(self) -> np.ndarray:
        return super().clean_source()[:32]


class BrokenData(Cifar10Mini):
    """What image folders do: a file that cannot be read, in one domain."""

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        if domain.corruption == "fog":
            raise OSError("ILSVRC_1.JPEG: image file is truncated")
        return super().test_images(domain, index)


class Unpreparable(Cifar10Mini):
    """Images that cannot be made beforehand."""

    def prepare(self, domain: Domain, count: int) -> None:
        raise OSError("the cache is gone")


class NoImages(Cifar10Mini):
    """A test set without images."""

    def test_labels(self) -> np.ndarray:
        return super().test_labels()[:0]


class TooManyClasses(Cifar10Mini):
    """Says ten classes, and has eleven."""

    def test_labels(self) -> np.ndarray:
        labels: np.ndarray = super().test_labels().copy()
        labels[0] = 10
        return labels


@dataclass
class WrongSize(Data):
    """A hundred classes of larger images: no embedded network fits."""

    num_classes, input_size = 100, 64


class NoDataclass(Data):
    """Whoever wrote this has forgotten a line."""

    num_classes, input_size = 10, 32


class NoFingerprint(ResNetMicro):
    """Weights that have gone missing."""

    def fingerprint(self) -> str:
        raise OSError("the weights are gone")
