"""Fake tensors on which real method code runs unmodified, including `if loss.isfinite()`.

Fake tensors have shapes but no values, so PyTorch refuses every operation that depends on a value. Byte
counts need an answer, which follows one convention for all methods:

- every sample is kept: a mask selects all rows, `nonzero` and `unique` return the full length;
- a number read from a tensor is 1, a truth value True, a sum over a mask the mask's size;
- nothing is NaN or infinite; a scalar compares with a constant as the number read from it would;
- a tensor converted to NumPy is an array of ones.

Fake tensors can also be on a device that this machine does not have, and refuse to be mixed with tensors of
another device, as real ones would. Only autograd's engine needs the real device; `LeavesFakeTensors` gives it
gradients of the right shape.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


@contextmanager
def fake_tensors() -> Iterator[None]:
    """All tensors created inside are fake: nothing is computed or allocated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")  # by deepcopy
        with FakeTensorMode(allow_non_fake_inputs=True), AnswersByConvention(), LeavesFakeTensors():
            yield


class AnswersByConvention(TorchDispatchMode):
    """Answers questions about values by the conventions above."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        try:
            result = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            if func not in _ANSWERS:
                raise
            return _ANSWERS[func](*args, **kwargs)
        if func in _NOMINALS:
            result.nominal = _NOMINALS[func](*args)
        return result


class LeavesFakeTensors(TorchFunctionMode):
    """Operations that fake tensors do not support: NumPy, copies of real tensors, gradients on a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.numpy, Tensor.__array__):
            tensor = args[0]
            if tensor.device.type != "cpu":
                raise TypeError(
                    f"a tensor on {tensor.device} cannot be a NumPy array; copy it with .cpu() first"
                )
            return np.ones(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        if func is Tensor.__deepcopy__ and not isinstance(args[0], FakeTensor):
            with unset_fake_temporarily():  # the state of a generator must stay a real tensor
                return func(*args, **(kwargs or {}))
        if func is Tensor.__deepcopy__:
            return _copied(*args)
        if func is Tensor.backward and args[0].device.type != "cpu":
            return _give_gradients(args[0])
        if func is torch.autograd.grad and args[1][0].device.type != "cpu":
            return tuple(map(torch.empty_like, args[1]))
        return func(*args, **(kwargs or {}))


def _copied(tensor: FakeTensor, memo: dict[int, Any]) -> Tensor:
    """A copy of the tensor alone; PyTorch's own also copies the mode, with its caches, and may crash."""
    if id(tensor) not in memo:
        memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    return memo[id(tensor)]


def _give_gradients(loss: Tensor) -> None:
    """Give every leaf of the graph a gradient of its shape, as `backward` does."""
    nodes, seen = [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            leaf.grad = torch.empty_like(leaf)
        nodes += [following for following, _ in node.next_functions]


# Values: the number that is read from a tensor ---------------------------------------------------------


def _nominal(tensor: Any) -> Any:
    return getattr(tensor, "nominal", 1)


def _not(tensor: Tensor) -> Any:
    return not _nominal(tensor) if tensor.dtype == torch.bool else 1


def _same(tensor: Tensor, *_: Any) -> Any:
    return _nominal(tensor)


def _sum(tensor: Tensor, *_: Any) -> Any:
    return tensor.numel() * _nominal(tensor) if tensor.dtype == torch.bool else 1


def _compare(relation: str) -> Callable[[Tensor, Any], bool]:
    def compare(tensor: Tensor, constant: Any) -> bool:
        return getattr(operator, relation)(_nominal(tensor), constant) if tensor.dim() == 0 else True

    return compare


_NOMINALS: dict[Any, Callable[..., Any]] = {
    aten.isnan.default: lambda _: False,
    aten.isinf.default: lambda _: False,
    aten.bitwise_not.default: _not,
    aten.logical_not.default: _not,
    aten.bitwise_and.Tensor: lambda a, b: bool(_nominal(a) and _nominal(b)),
    aten.logical_and.default: lambda a, b: bool(_nominal(a) and _nominal(b)),
    aten.bitwise_or.Tensor: lambda a, b: bool(_nominal(a) or _nominal(b)),
    aten.logical_or.default: lambda a, b: bool(_nominal(a) or _nominal(b)),
    **dict.fromkeys((aten.any.default, aten.any.dim, aten.all.default, aten.all.dim), _same),
    **dict.fromkeys((aten._to_copy.default, aten.detach.default), _same),
    aten.sum.default: _sum,
    aten.count_nonzero.default: _sum,
    **{getattr(aten, name).Scalar: _compare(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}


# Shapes: the size of a selection -----------------------------------------------------------------------


def _scalar(tensor: Tensor) -> bool | int | float:
    value = _nominal(tensor)
    if tensor.dtype == torch.bool:
        return bool(value)
    return float(value) if tensor.is_floating_point() else int(value)


def _nonzero(tensor: Tensor) -> Tensor:
    return tensor.new_empty((tensor.numel(), tensor.dim()), dtype=torch.long)


def _index(tensor: Tensor, indices: list[Tensor | None]) -> Tensor:
    """A mask of n elements in k dimensions counts as k index vectors of length n."""
    plain: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            plain += _nonzero(index).unbind(1)
        else:
            plain.append(index)
    return aten.index.Tensor(tensor, plain)


def _masked_select(tensor: Tensor, mask: Tensor) -> Tensor:
    return tensor.new_empty(torch.broadcast_shapes(tensor.shape, mask.shape).numel())


def _unique(
    tensor: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    inverse = tensor.shape if return_inverse else (0,)
    counts = (tensor.numel(),) if return_counts else (0,)
    return (
        tensor.new_empty(tensor.numel()),
        tensor.new_empty(inverse, dtype=torch.long),
        tensor.new_empty(counts, dtype=torch.long),
    )


def _bincount(tensor: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    dtype = torch.long if weights is None else weights.dtype
    return tensor.new_empty(max(minlength, tensor.numel()), dtype=dtype)


_ANSWERS: dict[Any, Callable[..., Any]] = {
    aten._local_scalar_dense.default: _scalar,
    aten.equal.default: lambda *_: True,
    aten.allclose.default: lambda *_: True,
    aten.nonzero.default: _nonzero,
    aten.index.Tensor: _index,
    aten.masked_select.default: _masked_select,
    aten._unique2.default: _unique,
    aten.bincount.default: _bincount,
}
