"""Settings of a process that computes: its device, reproducible sums on a GPU, and how it keeps memory."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

import torch

from tta_bench.errors import UserError

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # names and numbers of glibc's malloc.h


def choose_device(wanted: str) -> torch.device:
    """The device for `auto`, `cpu` or `cuda`; `auto` is a GPU if this process sees one."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError(
            "run.device is cuda, and PyTorch sees no GPU here. `tta-bench doctor` shows what it sees; "
            "--device cpu runs without a GPU."
        )
    # A GPU must give the same sums every time: a resumed cell must have the numbers of a whole one.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False  # otherwise the fastest convolution of the moment is chosen
    torch.backends.cudnn.allow_tf32 = False  # FP32 means FP32, as on a CPU
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.device("cuda")


def device_name(device: torch.device) -> str:
    """The name of a device, as records carry it."""
    return "cpu" if device.type == "cpu" else f"{device.type} ({torch.cuda.get_device_name(device)})"


def keep_freed_memory() -> bool:
    """Let the C library keep freed memory for the next pass; False if it cannot.

    By default it returns large blocks to the system and requests them again, page by page, for the next
    layer's tensors: on a virtual machine that took a third of a quantised transformer's pass.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))


def resident_bytes() -> int | None:
    """Main memory of this process without freed blocks; None where it cannot be read."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):  # another system
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
