"""Which build of torch is installed, how much disk it takes, and whether torchvision fits it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import distributions

from tta_bench.checks.finding import NOTE, OK, PROBLEM, Finding

GIB = 2**30
LIBRARIES = ("nvidia-", "cuda-")  # packages that the CUDA build of torch installs, beside triton
CPU_INSTALL = "the command for torch and torchvision that pytorch.org/get-started names for CPU"
ONE_KIND = f"Install both from one index. For the CPU: {CPU_INSTALL}."
SMALLER = (
    "There is no GPU, and the CPU build takes about 1 GiB. For it, make a new environment and begin with "
    f"{CPU_INSTALL}; see docs/install.md."
)


def torch_build() -> Iterator[Finding]:
    """The build of torch with its libraries; a note if it is a CUDA build on a machine without a GPU."""
    import torch

    kind = "CPU" if torch.version.cuda is None else f"CUDA {torch.version.cuda}"
    size = installed_bytes() / GIB
    found = f"{torch.__version__} for {kind}; with its libraries {size:.1f} GiB"
    needless = torch.version.cuda is not None and not torch.cuda.is_available()
    yield Finding("torch build", NOTE if needless else OK, found, SMALLER if needless else "")


def torchvision_fits() -> Iterator[Finding]:
    """Whether torchvision, which timm imports, can be imported beside this torch."""
    try:
        import torchvision
    except (ImportError, OSError, RuntimeError) as error:  # a build for another torch raises any of these
        yield Finding("torchvision", PROBLEM, f"cannot be imported: {error}", ONE_KIND)
    else:
        yield Finding("torchvision", OK, f"{torchvision.__version__}, fits torch")


def installed_bytes() -> int:
    """The size of the files of torch, triton and the CUDA libraries, as their packages list them."""
    found = 0
    for each in distributions():
        name = (each.metadata["Name"] or "").lower()
        if name in ("torch", "triton") or name.startswith(LIBRARIES):
            found += sum(file.size or 0 for file in each.files or ())
    return found
