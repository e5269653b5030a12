"""Small C++ libraries, built on first use where there is a compiler, once a machine.

They only make things faster: whoever calls one has the same computation in PyTorch, for machines without
a compiler, for TTA_BENCH_COMPILE=0, other devices, fake tensors and gradients.
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

from tta_bench import cache

# Contraction of a·b + c would change bits, so it is off. The other two only let loops be vectorised.
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
)
# By what PyTorch found the processor to have: a cache on a shared disk then serves different machines.
TARGETS = {
    "AVX512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "AVX2": ("-march=x86-64-v3",),
}
BUILD_SECONDS = 120
KIND = "native"  # of cache entries


def fits(x: Tensor) -> bool:
    """Whether compiled code may work on x: real float numbers on a CPU, no gradient asked for."""
    wants_gradient = x.requires_grad and torch.is_grad_enabled()
    return type(x) is Tensor and x.is_cpu and x.dtype is torch.float32 and not wants_gradient


@functools.cache
def library(package: str, file: str) -> ctypes.CDLL | None:
    """The library made from a source file of a package, or None where there is none to be had."""
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
    """The library: found in the cache, else made; None if that fails."""
    machine = [platform.system(), platform.machine(), *platform.libc_ver()]
    recipe = " ".join([compiler, *flags, *machine])
    name = f"{hashlib.sha256(source + recipe.encode()).hexdigest()[:16]}.so"
    try:
        code = cache.load_or_make(KIND, name, lambda: _compile([compiler, *flags], source), bytes, bytes)
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
    """The library, from its verified file: a process that loads a truncated one is killed."""
    saved = cache.find(KIND, name)
    if saved is not None:
        with suppress(OSError):  # the cache may lie on a disk from which nothing can be executed
            return ctypes.CDLL(str(saved))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / name
        path.write_bytes(code)
        return ctypes.CDLL(str(path))
