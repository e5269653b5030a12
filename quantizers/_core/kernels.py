"""Calls into kernels.cpp: which tensors it supports, and how their rows lie in memory."""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache

import torch
from torch import Tensor

from tta_bench.api import compiled_library

FLAT_ROW = 4096  # numbers that a thread processes at a time in a dense tensor
WORTH_THREADS = 1 << 15  # numbers from which on threads are worth it; PyTorch has the same rule
MOST_DIMENSIONS = 4
NO_AXIS = 3  # there is one scale for the whole tensor
KINDS = {"p": ctypes.c_void_p, "f": ctypes.c_float, "n": ctypes.c_int64}
ARGUMENTS = {  # after x, out and rows
    "uniform": "pppff",
    "twin_select": "fff",
    "twin_sum": "ffff",
    "staircase": "ppn",
}


class Rows(ctypes.Structure):
    """Where the rows of a tensor lie; the struct of kernels.cpp."""

    _fields_ = (
        ("size", ctypes.c_int64 * 3),
        ("stride", ctypes.c_int64 * 3),
        ("inner", ctypes.c_int64),
        ("total", ctypes.c_int64),
        ("axis", ctypes.c_int64),
        ("threads", ctypes.c_int64),
    )


def available(x: Tensor) -> bool:
    """Whether there are kernels for this tensor."""
    return x.numel() > 0 and x.dim() <= MOST_DIMENSIONS and _library(x) is not None


def run(
    kernel: str,
    x: Tensor,
    *arguments: Tensor | float | None,
    axis: int | None = None,
    in_place: bool = False,
) -> Tensor:
    """Run a kernel over x; `axis` is the dimension along which scales differ, never the last.

    A dense tensor keeps its memory format, and may be overwritten; the result of any other is contiguous, as
    a matrix product needs it.
    """
    by_rows = axis is not None or not _is_dense(x)
    if by_rows and x.stride(-1) != 1:
        if x.dim() > 1 and x.stride(-2) == 1:
            return run(kernel, x.mT, *arguments, axis=axis).mT
        x = x.contiguous()
    out = torch.empty(x.shape) if by_rows else x if in_place else torch.empty_like(x)
    threads = torch.get_num_threads() if x.numel() >= WORTH_THREADS else 1
    rows = _rows(x.shape, x.stride(), axis, threads) if by_rows else _flat(x.numel(), threads)
    numbers = [a.data_ptr() if isinstance(a, Tensor) else a for a in arguments]
    getattr(_library(x), kernel)(x.data_ptr(), out.data_ptr(), rows, *numbers)
    return out


def _is_dense(x: Tensor) -> bool:
    return x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))


@lru_cache(maxsize=1024)
def _flat(total: int, threads: int) -> Rows:
    """All numbers in memory order."""
    return Rows((-(-total // FLAT_ROW), 1, 1), (FLAT_ROW, 0, 0), FLAT_ROW, total, NO_AXIS, threads)


@lru_cache(maxsize=1024)
def _rows(shape: tuple[int, ...], stride: tuple[int, ...], axis: int | None, threads: int) -> Rows:
    """The last dimension as rows, the others as their three indices."""
    missing = MOST_DIMENSIONS - len(shape)
    size, step = (1,) * missing + tuple(shape[:-1]), (0,) * missing + tuple(stride[:-1])
    index = NO_AXIS if axis is None else missing + axis
    return Rows(size, step, shape[-1], torch.Size(shape).numel(), index, threads)


def _library(x: Tensor) -> ctypes.CDLL | None:
    library = compiled_library("tta_bench_quantizers._core", "kernels.cpp", x)
    return None if library is None else _declared(library)


@cache
def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """The library, with the argument types of its functions."""
    for name, kinds in ARGUMENTS.items():
        function = getattr(library, name)
        function.argtypes = [KINDS["p"], KINDS["p"], ctypes.POINTER(Rows), *(KINDS[k] for k in kinds)]
        function.restype = None
    return library
