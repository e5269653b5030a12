"""Fake tensors on which real method code runs unmodified, `if loss.isfinite()` and all.

Fake tensors have shapes and no values, so PyTorch refuses whatever depends on a value. Byte counts
need an answer all the same, and it is one convention for every method:

- every sample is kept: a mask selects all rows, `nonzero` and `unique` return their full length;
- a number read from a tensor is 1, a truth value True, a sum over a mask the mask's size;
- nothing is NaN or infinite; a scalar compares with a constant as the number read from it would;
- as NumPy arrays, tensors are ones.

Fake tensors also pretend to be on a device that this machine lacks, and refuse to be mixed with those of
another as real ones would. Only autograd's engine wants the device itself: gradients come out by shape.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Iterator
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
    """All tensors made inside are fake: nothing is computed or allocated, and questions get answers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")  # by deepcopy
        with FakeTensorMode(allow_non_fake_inputs=True), Answers(), Escapes():
            yield


class Answers(TorchDispatchMode):
    """Answers by convention where fake tensors alone cannot know."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
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


class Escapes(TorchFunctionMode):
    """The ways out of the fake world: to NumPy, and copies of tensors that were never in it."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in (Tensor.numpy, Tensor.__array__):
            tensor = args[0]
            if tensor.device.type != "cpu":
                raise TypeError(f"a tensor on {tensor.device} is no NumPy array; copy it by .cpu() first")
            return np.ones(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        if func is Tensor.__deepcopy__ and not isinstance(args[0], FakeTensor):
            with unset_fake_temporarily():  # a generator's state is real and must stay so
                return func(*args, **(kwargs or {}))
        if func is Tensor.backward and args[0].device.type != "cpu":
            return _give_gradients(args[0])
        if func is torch.autograd.grad and args[1][0].device.type != "cpu":
            return tuple(map(torch.empty_like, args[1]))
        return func(*args, **(kwargs or {}))


def _give_gradients(loss: Tensor) -> None:
    """What `backward` leaves behind, as far as shapes go: a gradient at every leaf of the graph."""
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


# Values: what a tensor would be asked for -------------------------------------------------------------


def _nominal(tensor: Any) -> Any:
    return getattr(tensor, "nominal", 1)


def _not(tensor: Tensor) -> Any:
    return not _nominal(tensor) if tensor.dtype == torch.bool else 1


def _same(tensor: Tensor, *_: Any) -> Any:
    return _nominal(tensor)


def _sum(tensor: Tensor, *_: Any) -> Any:
    return tensor.numel() * _nominal(tensor) if tensor.dtype == torch.bool else 1


def _compare(relation: Callable[[Any, Any], bool]) -> Callable[[Tensor, Any], bool]:
    def compare(tensor: Tensor, constant: Any) -> bool:
        return relation(_nominal(tensor), constant) if tensor.dim() == 0 else True

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
    aten.any.default: _same,
    aten.any.dim: _same,
    aten.all.default: _same,
    aten.all.dim: _same,
    aten._to_copy.default: _same,
    aten.detach.default: _same,
    aten.sum.default: _sum,
    aten.count_nonzero.default: _sum,
    aten.eq.Scalar: _compare(operator.eq),
    aten.ne.Scalar: _compare(operator.ne),
    aten.lt.Scalar: _compare(operator.lt),
    aten.le.Scalar: _compare(operator.le),
    aten.gt.Scalar: _compare(operator.gt),
    aten.ge.Scalar: _compare(operator.ge),
}


# Shapes: how large a selection would be ---------------------------------------------------------------


def _scalar(tensor: Tensor) -> bool | int | float:
    value = _nominal(tensor)
    if tensor.dtype == torch.bool:
        return bool(value)
    return float(value) if tensor.is_floating_point() else int(value)


def _nonzero(tensor: Tensor) -> Tensor:
    return tensor.new_empty((tensor.numel(), tensor.dim()), dtype=torch.long)


def _index(tensor: Tensor, indices: list[Tensor | None]) -> Tensor:
    """A mask of n elements in k dimensions selects as k index vectors of length n do."""
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
