"""Calls into kernels.cpp: which tensors it takes, and how their rows lie in memory."""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache

import torch
from torch import Tensor

from tta_bench import native

FLAT_ROW = 4096  # numbers that a thread takes at a time from a tensor in one piece
WORTH_THREADS = 1 << 15  # numbers from which on threads pay; PyTorch has the same rule
MOST_DIMENSIONS = 4
NO_GRANULE = 3  # there is one scale for all
KINDS = {"p": ctypes.c_void_p, "f": ctypes.c_float, "n": ctypes.c_int64}
ARGUMENTS = {  # after x, out and rows
    "uniform": "pppff",
    "smoothed": "pppp",
    "twin_select": "fff",
    "twin_sum": "ffff",
    "twin_signed": "fff",
    "staircase": "ppn",
}


class Rows(ctypes.Structure):
    """Where the rows of a tensor lie; as in kernels.cpp."""

    _fields_ = (
        ("size", ctypes.c_int64 * 3),
        ("stride", ctypes.c_int64 * 3),
        ("inner", ctypes.c_int64),
        ("total", ctypes.c_int64),
        ("granule", ctypes.c_int64),
        ("threads", ctypes.c_int64),
    )


def available(x: Tensor) -> bool:
    """Whether there are kernels, and for such a tensor."""
    return native.fits(x) and x.dim() <= MOST_DIMENSIONS and x.numel() > 0 and _library() is not None


def run(
    kernel: str,
    x: Tensor,
    *arguments: Tensor | float | None,
    granule: int | None = None,
    in_place: bool = False,
) -> Tensor:
    """A kernel over x; `granule` is the dimension along which scales differ, not the last.

    A tensor in one piece keeps its memory format, and may be overwritten; the rows of any other come out
    one behind the other, as a matrix product wants them.
    """
    pieces = granule is not None or not _in_one_piece(x)
    if pieces and x.stride(-1) != 1:
        if x.dim() > 1 and x.stride(-2) == 1:
            return run(kernel, x.mT, *arguments, granule=granule).mT
        x = x.contiguous()
    out = torch.empty(x.shape) if pieces else x if in_place else torch.empty_like(x)
    threads = torch.get_num_threads() if x.numel() >= WORTH_THREADS else 1
    rows = _rows(x.shape, x.stride(), granule, threads) if pieces else _flat(x.numel(), threads)
    numbers = [a.data_ptr() if isinstance(a, Tensor) else a for a in arguments]
    getattr(_library(), kernel)(x.data_ptr(), out.data_ptr(), rows, *numbers)
    return out


def _in_one_piece(x: Tensor) -> bool:
    return x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))


@lru_cache(maxsize=1024)
def _flat(total: int, threads: int) -> Rows:
    """All numbers in the order in which they lie."""
    return Rows((-(-total // FLAT_ROW), 1, 1), (FLAT_ROW, 0, 0), FLAT_ROW, total, NO_GRANULE, threads)


@lru_cache(maxsize=1024)
def _rows(shape: tuple[int, ...], stride: tuple[int, ...], granule: int | None, threads: int) -> Rows:
    """The last dimension as rows, the others as their three indices."""
    missing = MOST_DIMENSIONS - len(shape)
    size, step = (1,) * missing + tuple(shape[:-1]), (0,) * missing + tuple(stride[:-1])
    index = NO_GRANULE if granule is None else missing + granule
    return Rows(size, step, shape[-1], torch.Size(shape).numel(), index, threads)


@cache
def _library() -> ctypes.CDLL | None:
    library = native.library("tta_bench_quantizers", "kernels.cpp")
    if library is not None:
        for name, kinds in ARGUMENTS.items():
            function = getattr(library, name)
            function.argtypes = [KINDS["p"], KINDS["p"], ctypes.POINTER(Rows), *(KINDS[k] for k in kinds)]
            function.restype = None
    return library
