"""Calibrations on disk: made once a machine, found again by what they were made from.

One safetensors file each: integer codes and scales, and a JSON header that says of which weights.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from tta_bench.api import Calibration
from tta_bench.errors import UserError

FORMAT = "tta-bench-calibration-1"


def cached(folder: Path, facts: dict[str, Any], make: Callable[[], Calibration]) -> Calibration:
    """The calibration made from `facts`: read if it is there, made and kept otherwise."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    path = folder / f"{digest[:32]}.safetensors"
    if path.exists():
        try:
            return load(path, facts["weights"])
        except UserError:
            path.unlink(missing_ok=True)  # damaged: made again below
    calibration = make()
    if calibration:
        save(path, calibration, facts)
    return calibration


def save(path: Path, calibration: Calibration, facts: dict[str, Any]) -> None:
    """Write codes and scales, with what they were made from, in one atomic step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous() for name, tensor in calibration.items()}
    header = {"format": FORMAT, "facts": json.dumps(facts, sort_keys=True), "sha256": _digest(tensors)}
    partial = path.with_suffix(f".{os.getpid()}.partial")
    save_file(tensors, partial, metadata=header)
    os.replace(partial, path)


def load(path: Path, weights_sha256: str) -> Calibration:
    """Read a calibration; refuse one that is damaged, or of other weights."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not a calibration file: {error}. Delete it.") from error
    if header.get("format") != FORMAT:
        raise UserError(f"{path}: not a calibration of this program. Delete it.")
    try:
        made_of, intact = str(json.loads(header["facts"])["weights"]), header["sha256"] == _digest(tensors)
    except (LookupError, TypeError, ValueError):
        intact = False
    if not intact:
        raise UserError(f"{path}: a damaged calibration. Delete it.")
    if made_of != weights_sha256:
        raise UserError(
            f"{path}: made from weights {made_of[:12]}…, and the model has {weights_sha256[:12]}…. "
            "Calibrate again with these weights."
        )
    return tensors


def _digest(tensors: Calibration) -> str:
    """SHA-256 over names, types, shapes and bytes: a flipped bit would quantise wrongly, and silently."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()
