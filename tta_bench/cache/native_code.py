"""Small C++ libraries, built on first use, once per machine, if there is a compiler.

They only make things faster. Every caller also has the same computation in PyTorch: for machines without a
compiler, for TTA_BENCH_COMPILE=0, other devices, fake tensors and gradients.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from tta_bench.cache import entries

# Contraction of a·b + c would change bits, so it is off. The last two flags only let loops be vectorised.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
)
# By the capability that PyTorch reports, so that a cache on a shared disk serves different machines.
TARGETS = {
    "AVX512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "AVX2": ("-march=x86-64-v3",),
}
BUILD_SECONDS = 120
KIND = "native"  # of cache entries


def fits(x: Tensor) -> bool:
    """Whether compiled code can handle x: a plain float32 tensor on the CPU without gradients."""
    wants_gradient = x.requires_grad and torch.is_grad_enabled()
    return type(x) is Tensor and x.is_cpu and x.dtype is torch.float32 and not wants_gradient


def compiled_library(package: str, file: str, x: Tensor) -> ctypes.CDLL | None:
    """The library compiled from a C++ file of a package, for work on x; None where PyTorch must do the work.

    That is the case without a compiler, with TTA_BENCH_COMPILE=0, for fake tensors, for tensors on other
    devices or of other types than float32, and where a gradient is wanted. Compilation happens once on a
    machine, without fast-math, so that the same operations give the same bits as in PyTorch.
    """
    return library(package, file) if fits(x) else None


@functools.cache
def library(package: str, file: str) -> ctypes.CDLL | None:
    """The library built from a source file of a package; None if it cannot be built."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if os.environ.get("TTA_BENCH_COMPILE") == "0" or compiler is None:
        return None
    source = (resources.files(package) / file).read_bytes()
    target = TARGETS.get(torch.backends.cpu.get_cpu_capability(), ())
    for threads in (("-fopenmp",), ()):  # not every compiler has OpenMP
        built = _built(compiler, source, (*FLAGS, *target, *threads))
        if built is not None:
            return built
    return None


def _built(compiler: str, source: bytes, flags: Sequence[str]) -> ctypes.CDLL | None:
    """The library, from the cache or newly compiled; None if that fails."""
    machine = [platform.system(), platform.machine(), *platform.libc_ver()]
    recipe = " ".join([compiler, *flags, *machine])
    name = f"{hashlib.sha256(source + recipe.encode()).hexdigest()[:16]}.so"
    try:
        code = entries.load_or_make(KIND, name, lambda: _compile([compiler, *flags], source), bytes, bytes)
        return _loaded(name, code)
    except (OSError, subprocess.SubprocessError):
        return None


def _compile(command: Sequence[str], source: bytes) -> bytes:
    """The shared library that a compiler makes of a source."""
    with tempfile.TemporaryDirectory() as place:
        target = Path(place) / "library.so"
        subprocess.run(
            [*command, "-x", "c++", "-", "-o", str(target)],
            input=source,
            capture_output=True,
            timeout=BUILD_SECONDS,
            check=True,
        )
        return target.read_bytes()


def _loaded(name: str, code: bytes) -> ctypes.CDLL:
    """The library, loaded from a verified file: loading a truncated one would kill the process."""
    saved = entries.find(KIND, name)
    if saved is not None:
        with suppress(OSError):  # the disk of the cache may be mounted without permission to execute
            return ctypes.CDLL(str(saved))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / name
        path.write_bytes(code)
        return ctypes.CDLL(str(path))
