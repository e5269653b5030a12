"""Activations as unsigned 8-bit codes, which integer kernels multiply."""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor

from tta_bench.api import compiled_library

WORTH_THREADS = 1 << 15  # numbers from which on threads are worth it


def unsigned_codes(x: Tensor, scale: float, zero: int) -> tuple[Tensor, bool]:
    """clip(round(x / scale) + zero, 0, 255) as bytes in the memory format of x, and whether x has NaN.

    NaN becomes the code of 0.
    """
    library = compiled_library("tta_bench_quantizers._engines", "bytes.cpp", x)
    if library is None or x.numel() == 0:
        return _eager(x, scale, zero)
    if not (x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))):
        x = x.contiguous()
    out = torch.empty_like(x, dtype=torch.uint8)
    threads = torch.get_num_threads() if x.numel() >= WORTH_THREADS else 1
    has_nan = _declared(library)(x.data_ptr(), out.data_ptr(), x.numel(), scale, -zero, threads)
    return out, bool(has_nan)


def _eager(x: Tensor, scale: float, zero: int) -> tuple[Tensor, bool]:
    codes = torch.div(x, torch.tensor(scale)).round_().nan_to_num_(0.0, torch.inf, -torch.inf)
    return codes.clamp_(-zero, 255 - zero).add_(zero).to(torch.uint8), bool(x.isnan().any())


@cache
def _declared(library: ctypes.CDLL) -> ctypes._NamedFuncPointer:
    """The library's function, with the types of its arguments."""
    function = library.unsigned_codes
    pointer, number = ctypes.c_void_p, ctypes.c_float
    function.argtypes = [pointer, pointer, ctypes.c_int64, number, number, ctypes.c_int64]
    function.restype = ctypes.c_int32
    return function
