"""Weights in the folder where torch.hub keeps what it has downloaded.

torchvision's file names end with the first eight digits of their SHA-256, which pin their content.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import torch

from tta_bench.models.weights import BadWeights, verified


def in_torch_cache(file: str) -> Path | None:
    """A downloaded file, if it is there; does not use the network."""
    path = Path(torch.hub.get_dir()) / "checkpoints" / file
    return path if path.is_file() else None


def fetch(file: str, address: Callable[[], str]) -> Path:
    """A file of torchvision with the SHA-256 that its name states, downloaded if necessary."""
    digits = Path(file).stem.rpartition("-")[2]
    if (here := in_torch_cache(file)) is None and (error := _download(file, address, digits)):
        raise BadWeights(
            f"the weights {file} are not in torch's hub folder and cannot be downloaded ({error}). Run this "
            "once where there is a network, or get this file of torchvision and give `weights: PATH`."
        )
    here = here or in_torch_cache(file)
    assert here is not None
    return verified(here, digits)


@lru_cache(maxsize=8)
def _download(file: str, address: Callable[[], str], digits: str) -> str:
    """Download a file; the name of the error if that fails, cached since a failure takes long."""
    path = Path(torch.hub.get_dir()) / "checkpoints" / file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(address(), str(path), hash_prefix=digits, progress=False)
    except (OSError, RuntimeError, ValueError) as error:  # urllib's errors are OSErrors
        return type(error).__name__
    return ""
