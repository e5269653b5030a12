"""Encode nested tensors and plain data as bytes and back, bit for bit and without pickle.

A method's `state_dict` may hold what can be encoded here. The bytes are a safetensors file: tensors and
arrays are numbered, and the structure is JSON in the file's metadata.
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


class BadEncoding(ValueError):
    """Bytes that `encode` did not make."""


def encode(state: Any) -> bytes:
    """The bytes of a nested state; TypeError if it holds anything but tensors, arrays and plain data."""
    encoder = _Encoder()
    structure = json.dumps(encoder.node(state, "state"))
    return save(encoder.tensors, metadata={"format": FORMAT, "structure": structure})


def decode(content: bytes) -> Any:
    """The state that `encode` made the bytes of; no code in them is ever executed."""
    try:
        length = int.from_bytes(content[:HEADER_LENGTH_BYTES], "little")
        header = json.loads(content[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length])
        described = header["__metadata__"]
        if described["format"] != FORMAT:
            raise BadEncoding(f"the format is {described['format']}, not {FORMAT}")
        return _decoded(json.loads(described["structure"]), load(content))
    except (SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise BadEncoding(f"not a state of tensors and plain data: {error}") from error


def placed(state: Any, device: torch.device) -> Any:
    """The state with its tensors on a device, except uint8: states of generators stay in main memory."""
    if isinstance(state, Tensor):
        return state if state.dtype == torch.uint8 else state.to(device)
    if isinstance(state, dict):
        return {key: placed(value, device) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(placed(item, device) for item in state)
    return state


class _Encoder:
    """Collects the tensors of a state; returns the rest as JSON, in which a list is a tagged value."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.storages: set[int] = set()

    def node(self, value: Any, path: str) -> Any:
        if isinstance(value, np.generic):  # before float: np.float64 is one
            return ["scalar", value.dtype.str, base64.b64encode(value.tobytes()).decode()]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, Tensor):
            # strides too: a matrix product rounds differently with a transposed operand
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
    raise BadEncoding(f'unknown kind "{kind}"')
