"""State dicts: tensors only, from a file or the hub, identified by SHA-256, loaded only if they fit."""

from __future__ import annotations

import hashlib
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from tta_bench.cache.content_hash import file_sha256
from tta_bench.errors import UserError

NAMED = 4  # keys that an error message lists
HUB_FILE = "model.safetensors"
PARALLEL = "module."  # before every key of a network that was saved inside DataParallel
UNUSED = "num_batches_tracked"  # older checkpoints lack it; no prediction depends on it


class BadWeights(UserError):
    """Weights that are missing, unreadable or of another network: which, why, and the remedy."""


def read(path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors of a state dict; no code in the file is run. On `meta`, only names and shapes."""
    try:
        if path.suffix == ".safetensors":
            return _shapes(path) if device == "meta" else load_file(path, device)
        # Official checkpoints keep their command line beside the tensors, as a Namespace of plain values,
        # and numbers such as their best accuracy, as scalars of NumPy.
        with torch.serialization.safe_globals([Namespace, *_of_scalars()]):
            content = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, UnpicklingError, SafetensorError) as error:
        if _is_page(path):
            raise BadWeights(f"{path}: is a web page. Download the file that the page offers.") from error
        reason = str(error).split("\n")[0].split(". ")[0].rstrip(".")
        raise BadWeights(
            f"{path}: cannot be read as tensors ({type(error).__name__}: {reason}). Give a .safetensors "
            "file, or a .pth with nothing but a state dict in it."
        ) from error
    for key in ("model", "state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(v, Tensor) for v in content.values()):
        raise BadWeights(f"{path}: holds no state dict. Save `model.state_dict()`, or give another file.")
    parallel = all(key.startswith(PARALLEL) for key in content)
    return {key.removeprefix(PARALLEL) if parallel else key: tensor for key, tensor in content.items()}


def misfit(state: Mapping[str, Tensor], net: nn.Module) -> str | None:
    """Why a state dict does not fit this network, with keys; None if it fits."""
    wanted = net.state_dict()
    parts = {
        "missing": [key for key in wanted if key not in state and not key.endswith(UNUSED)],
        "unexpected": [key for key in state if key not in wanted],
        "of another shape": [
            f"{key} {list(state[key].shape)} instead of {list(tensor.shape)}"
            for key, tensor in wanted.items()
            if key in state and state[key].shape != tensor.shape
        ],
    }
    return "; ".join(f"{what}: {_some(keys)}" for what, keys in parts.items() if keys) or None


def put_(net: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put tensors that fit into a network."""
    net.load_state_dict(net.state_dict() | dict(state))  # keys that may be missing keep their values


def verified(path: Path, sha256: str) -> Path:
    """A file whose SHA-256 begins with these digits; otherwise an error."""
    found = file_sha256(path)[: len(sha256)]
    if found == sha256:
        return path
    raise BadWeights(
        f"{path}: its SHA-256 begins with {found[:12]}, and that of the published file with {sha256[:12]}. "
        "Copy the file again, or give `weights: PATH` to use it as it is."
    )


def in_hub_cache(repository: str) -> Path | None:
    """The file of a hub repository if it is in the cache; does not use the network."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, HUB_FILE)
    return Path(found) if isinstance(found, str) else None


def fetch(repository: str) -> Path:
    """The file of a hub repository, downloaded if necessary."""
    if here := in_hub_cache(repository):
        return here
    found = _download(repository)
    if isinstance(found, Path):
        return found
    raise BadWeights(
        f"the weights {repository} are not in the hub's cache and cannot be downloaded ({found}). Run this "
        f"once where there is a network, or get their {HUB_FILE} and give `weights: PATH`."
    )


@lru_cache(maxsize=64)
def _download(repository: str) -> Path | str:
    """The path of the downloaded file, or the error's name; cached, since a failure takes long."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repository, HUB_FILE))
    except Exception as error:  # the hub and its HTTP client raise many kinds of errors
        return type(error).__name__


def tensors_sha256(state: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, shapes and numbers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _of_scalars() -> list[Callable[..., object]]:
    """What makes a NumPy scalar in a pickle; its module has another name in NumPy 1 and 2."""

    def named(module: str) -> Callable[[np.dtype, bytes], np.generic]:
        def scalar(dtype: np.dtype, data: bytes) -> np.generic:
            return np.frombuffer(data, dtype)[0]  # refuses Python objects

        scalar.__module__, scalar.__qualname__ = module, "scalar"
        return scalar

    numbers = {type(np.dtype(code)) for code in np.typecodes["All"] if np.dtype(code).kind in "biuf"}
    return [np.dtype, *numbers, named("numpy.core.multiarray"), named("numpy._core.multiarray")]


def _is_page(path: Path) -> bool:
    """Whether a file is HTML: file hosts answer with a page that asks before they send large files."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip().startswith(b"<")
    except OSError:
        return False


def _shapes(path: Path) -> dict[str, Tensor]:
    with safe_open(path, framework="pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}


def _some(keys: list[str]) -> str:
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return ", ".join(keys[:NAMED]) + more
