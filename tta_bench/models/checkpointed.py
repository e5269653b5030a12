"""Base of models whose weights are in a file: published ones, your own, or random ones without a file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tta_bench.api import Model, ModelSource
from tta_bench.cache.content_hash import file_sha256
from tta_bench.models import weights as state_dicts
from tta_bench.models.variants import Deviations, Eps, Means, set_eps_
from tta_bench.models.weights import BadWeights


class CheckpointedModel(ModelSource):
    """Base: `weights` is `auto` (the published ones), `random`, or a state dict's path.

    A subclass defines its network (`network`). `mean`, `std` and `eps` say how its weights were trained if
    that differs from `scale` and the architecture's defaults.
    """

    paths = ("weights",)  # the fingerprint identifies them
    weights: str  # `auto`: the published weights; a path; or `random`
    name: str
    scale: Mapping[str, tuple[float, ...]]
    mean: Means = None  # of the channels, for the normalisation of images; null: those of the weights
    std: Deviations = None  # standard deviations of the channels; null: those of the weights
    eps: Eps = None  # added to the variance by norms; null: that of the network

    @abstractmethod
    def network(self) -> nn.Module:
        """The network with arbitrary weights."""

    @abstractmethod
    def adapter(self, net: nn.Module, **facts: Any) -> Model:
        """The network in its adapter."""

    def renamed(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """A file's tensors under the names of `network`."""
        return state

    def remedy(self, state: Mapping[str, Tensor]) -> str:
        """What to do about a state dict that does not fit."""
        return f"Give a state dict of {self.name}."

    def build(self) -> Model:
        if self.weights == "random":
            net = self._random()
            digest = state_dicts.tensors_sha256(net.state_dict())
        else:
            net, path = self._net(), self._file()
            state_dicts.put_(net, self._fitting(path, net))
            digest = file_sha256(path)
        model = self.adapter(net, **self._facts(), weights_sha256=digest)
        return model.eval().requires_grad_(False)

    def skeleton(self) -> Model:
        return self.adapter(self._net(), **self._facts()).eval()

    def fingerprint(self) -> str:
        """SHA-256 of the weights' file, or of random tensors; empty if the file is not here yet."""
        if self.weights == "random":
            return state_dicts.tensors_sha256(self._random().state_dict())
        path = self._local() if self.weights == "auto" else Path(self.weights).expanduser()
        try:
            return file_sha256(path) if path else ""
        except OSError:  # `problems` reports it
            return ""

    def fetch(self) -> None:
        if self.weights == "auto":
            with suppress(BadWeights):
                self._fetched()

    def problems(self) -> list[str]:
        if self.weights == "random":
            return []
        with torch.device("meta"):
            net = self._net()
        try:
            self._fitting(self._file(), net, "meta")
        except BadWeights as error:
            return [str(error)]
        return []

    def _fitting(self, path: Path, net: nn.Module, device: str = "cpu") -> dict[str, Tensor]:
        """The tensors of a file under the network's names; BadWeights if they do not fit it."""
        state = self.renamed(state_dicts.read(path, device))
        if wrong := state_dicts.misfit(state, net):
            raise BadWeights(f"{path}: {wrong}. {self.remedy(state)}")
        return state

    def _net(self) -> nn.Module:
        """The network with arbitrary weights and the ε of `eps`."""
        net = self.network()
        if self.eps is not None:
            set_eps_(net, self.eps)
        return net

    def _local(self) -> Path | None:
        """The file that `auto` refers to, if it is on this machine."""
        return None

    @abstractmethod
    def _fetched(self) -> Path:
        """The file that `auto` refers to, downloaded if necessary."""

    def _facts(self) -> dict[str, Any]:
        given = {"mean": self.mean, "std": self.std}
        scale = dict(self.scale) | {key: value for key, value in given.items() if value is not None}
        return dict(name=self.name, num_classes=self.num_classes, input_size=self.input_size, **scale)

    def _file(self) -> Path:
        if self.weights == "auto":
            return self._fetched()
        path = Path(self.weights).expanduser()
        if not path.is_file():
            raise BadWeights(
                f"weights file {path} is missing. Give the path of a state dict, `auto` or `random`."
            )
        return path

    def _random(self) -> nn.Module:
        # The same numbers in every process: a cell may be split over several.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self._net()
