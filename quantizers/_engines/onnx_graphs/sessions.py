"""Modules that run a graph on ONNX Runtime. Norm layers stay modules; each call reads their parameters."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from tta_bench_quantizers._engines.not_a_number import nan_images_

INTEGER_OPERATORS = (
    "MatMulIntegerToFloat",
    "QLinearMatMul",
    "QGemm",
    "MatMulInteger",
    "DynamicQuantizeMatMul",
)
QUIET = 3  # errors only
AS_WRITTEN = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
REMEDY = "Use engine torch-int8 or simulated for this method."
PROVIDERS = ["CPUExecutionProvider"]


class Session:
    """An inference session, and the sites that its optimised graph computes in integers; copies share it."""

    def __init__(self, content: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "optimised.onnx")
            _write_optimised(content, file)
            self.integer_sites = _integer_sites(file)
            # A session that optimises a graph keeps up to twice the memory of one that gets it optimised.
            options = _options()
            options.graph_optimization_level = AS_WRITTEN
            self.session = onnxruntime.InferenceSession(file, options, providers=PROVIDERS)

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        return self

    def run(self, feeds: Mapping[str, Any]) -> Tensor:
        """The output for these inputs."""
        (output,) = self.session.run(None, dict(feeds))
        return torch.from_numpy(output)


def _write_optimised(content: bytes, file: str) -> None:
    """Write the graph as ONNX Runtime computes it on this processor."""
    options = _options()
    options.optimized_model_filepath = file
    onnxruntime.InferenceSession(content, options, providers=PROVIDERS)


def _integer_sites(file: str) -> list[str]:
    """The nodes of an optimised graph that multiply integers."""
    return [node.name for node in onnx.load(file).graph.node if node.op_type in INTEGER_OPERATORS]


def _options() -> onnxruntime.SessionOptions:
    """As many threads as PyTorch; no memory is kept between passes, as each block would keep its own."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.log_severity_level = QUIET
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


class SessionModule(nn.Module):
    """A graph from tensor to tensor; `norms` are the layers, by name, whose parameters it reads."""

    def __init__(self, content: bytes, norms: Mapping[str, nn.Module] | None = None) -> None:
        super().__init__()
        self.session = Session(content)
        self.names = {name: type(norm) for name, norm in (norms or {}).items()}
        for name, norm in (norms or {}).items():
            self._place(name, norm)

    def _place(self, name: str, norm: nn.Module) -> None:
        """Keep a norm under its name, so that the network's names stay the same."""
        parent, _, child = name.rpartition(".")
        if parent:
            self.add_module(parent, nn.ModuleDict({child: norm}))
        else:
            self.add_module(child, norm)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise AttributeError(
                f"this part of the network is one graph on engine onnxruntime and has no {name}. {REMEDY}"
            ) from None

    def forward(self, x: Tensor) -> Tensor:
        parameters = self.parameters_now()
        output = self.session.run({"input": _array(x)} | parameters)
        if any(np.isnan(each).any() for each in parameters.values()):
            return output.fill_(torch.nan)
        return nan_images_(output, x) if x.sum().isnan() else output

    def parameters_now(self) -> dict[str, Any]:
        """The parameters of the norms as they are now, and whether they use the statistics of the batch."""
        feeds: dict[str, Any] = {}
        by_batch: set[bool] = set()
        for name, kind in self.names.items():
            norm: Any = self.get_submodule(name)
            if _is_changed(norm, kind):
                raise RuntimeError(
                    f"{name} was replaced or has a hook, and engine onnxruntime computes norms itself. "
                    f"{REMEDY}"
                )
            feeds |= {f"{name}.weight": _array(norm.weight), f"{name}.bias": _array(norm.bias)}
            if kind is nn.BatchNorm2d:
                feeds |= _statistics(name, norm)
                by_batch.add(_by_batch(name, norm))
        if len(by_batch) > 1:
            raise RuntimeError(
                "some BatchNorm layers of a block use the statistics of the batch and others stored ones, "
                f"and engine onnxruntime has one switch for all layers of a block. {REMEDY}"
            )
        return feeds | ({"batch_statistics": np.array(by_batch.pop())} if by_batch else {})


class FeatureMapSession(SessionModule):
    """A graph on feature maps with channels last: PyTorch's channels-last tensors, without a copy."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class HeadSession(SessionModule):
    """The classifier: an axis more, because runtimes compute a product of matrices in float."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[:, None])[:, 0]


class NormForward:
    """`forward` of a LayerNorm through which features are read, outside the blocks, by a graph.

    PyTorch and a program without it round sums differently, and layer features must have the same bits in
    both. The module stays, because the graph of its block reads its parameters, too.
    """

    def __init__(self, norm: nn.LayerNorm, session: Session) -> None:
        self.norm, self.session = norm, session

    def __call__(self, x: Tensor) -> Tensor:
        feeds = {"weight": _array(self.norm.weight), "bias": _array(self.norm.bias)}
        return self.session.run({"input": _array(x.reshape(-1, x.shape[-1]))} | feeds).view(x.shape)


class PatchSession(SessionModule):
    """The patch embedding. `proj` has the weight, from which prompts take their range."""

    def __init__(self, content: bytes, proj: Any) -> None:
        super().__init__(content)
        self.proj = proj


def _is_changed(norm: nn.Module, kind: type) -> bool:
    """Whether a method has replaced a norm, or given it work that a session does not do."""
    return type(norm) is not kind or bool(norm._forward_hooks or norm._forward_pre_hooks)


def _statistics(name: str, norm: Any) -> dict[str, Any]:
    """Stored statistics; without any, the graph gets some that it does not use."""
    if norm.running_mean is None:
        idle = np.zeros(norm.num_features, np.float32)
        return {f"{name}.mean": idle, f"{name}.variance": idle}
    return {f"{name}.mean": _array(norm.running_mean), f"{name}.variance": _array(norm.running_var)}


def _by_batch(name: str, norm: Any) -> bool:
    """Whether a norm uses the statistics of the batch; an error if it would also store them."""
    if norm.running_mean is None:
        return True
    if norm.training and norm.track_running_stats and norm.momentum != 0:
        raise RuntimeError(
            f"{name} would update its stored statistics in training mode, and engine onnxruntime only reads "
            f"them. {REMEDY}"
        )
    return norm.training


def _array(x: Tensor) -> np.ndarray:
    return x.detach().contiguous().numpy()
