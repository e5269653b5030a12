"""Trees of tensors and plain data ↔ bytes, exactly: what a method's `state_dict` may hold, without pickle.

The bytes are a safetensors file: tensors and arrays under numbers, the rest as JSON in its header.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

FORMAT = "tta-bench-tree-1"
HEADER_LENGTH_BYTES = 8  # safetensors: the length of the JSON header comes first


class BadTree(ValueError):
    """Bytes that are no tree of ours."""


def encode(tree: Any) -> bytes:
    """The bytes of a tree; TypeError for anything but tensors, arrays and plain data."""
    encoder = _Encoder()
    structure = json.dumps(encoder.node(tree, "state"))
    return save(encoder.tensors, metadata={"format": FORMAT, "structure": structure})


def decode(content: bytes) -> Any:
    """The tree of `encode`'s bytes; nothing in them is ever run."""
    try:
        length = int.from_bytes(content[:HEADER_LENGTH_BYTES], "little")
        header = json.loads(content[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length])
        described = header["__metadata__"]
        if described["format"] != FORMAT:
            raise BadTree(f"the format is {described['format']}, not {FORMAT}")
        return _decoded(json.loads(described["structure"]), load(content))
    except (SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise BadTree(f"not a tree of tensors and plain data: {error}") from error


def placed(tree: Any, device: torch.device) -> Any:
    """The tree with its tensors on a device, but for bytes: states of generators belong in main memory."""
    if isinstance(tree, Tensor):
        return tree if tree.dtype == torch.uint8 else tree.to(device)
    if isinstance(tree, dict):
        return {key: placed(value, device) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(placed(item, device) for item in tree)
    return tree


class _Encoder:
    """Walks a tree; collects tensors, answers with what JSON can say. Lists stand for tagged things."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.storages: set[int] = set()

    def node(self, value: Any, path: str) -> Any:
        if isinstance(value, np.generic):  # before float: np.float64 is one
            return ["scalar", value.dtype.str, base64.b64encode(value.tobytes()).decode()]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, Tensor):
            # strides too: a matrix product rounds differently when its operand lies the other way
            strides = [] if value.is_contiguous() else [list(value.stride())]
            return ["tensor", self.keep(value), *strides]
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                raise TypeError(f"{path}: an array of Python objects cannot be saved")
            raw = np.frombuffer(value.tobytes(), np.uint8).copy()
            return ["array", self.keep(torch.from_numpy(raw)), value.dtype.str, value.shape]
        if isinstance(value, bytes):
            return ["bytes", base64.b64encode(value).decode()]
        if isinstance(value, (list, tuple)):
            kind = "list" if isinstance(value, list) else "tuple"
            return [kind, *(self.node(item, f"{path}[{i}]") for i, item in enumerate(value))]
        if isinstance(value, dict):
            pairs = [[self.node(k, path), self.node(v, f"{path}[{k!r}]")] for k, v in value.items()]
            return ["dict", *pairs]
        raise TypeError(f"{path}: a {type(value).__name__} is neither a tensor nor plain data")

    def keep(self, tensor: Tensor) -> str:
        kept = tensor.detach().cpu().contiguous()
        if kept.untyped_storage().data_ptr() in self.storages:  # safetensors refuses shared memory
            kept = kept.clone()
        self.storages.add(kept.untyped_storage().data_ptr())
        name = str(len(self.tensors))
        self.tensors[name] = kept
        return name


def _decoded(node: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(node, list):
        return node
    kind, *rest = node
    if kind == "tensor":
        found = tensors[rest[0]]
        if len(rest) == 1:
            return found
        return torch.empty_strided(found.shape, rest[1], dtype=found.dtype).copy_(found)
    if kind == "array":
        name, dtype, shape = rest
        return np.frombuffer(tensors[name].numpy().tobytes(), np.dtype(dtype)).reshape(shape).copy()
    if kind == "scalar":
        return np.frombuffer(base64.b64decode(rest[1]), np.dtype(rest[0]))[0]
    if kind == "bytes":
        return base64.b64decode(rest[0])
    if kind == "dict":
        return {_decoded(k, tensors): _decoded(v, tensors) for k, v in rest}
    items = [_decoded(item, tensors) for item in rest]
    if kind == "list":
        return items
    if kind == "tuple":
        return tuple(items)
    raise BadTree(f'unknown kind "{kind}"')
