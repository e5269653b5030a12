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
    header = {"format": FORMAT, "facts": json.dumps(facts, sort_keys=True)}
    partial = path.with_suffix(f".{os.getpid()}.partial")
    save_file({k: v.contiguous() for k, v in calibration.items()}, partial, metadata=header)
    os.replace(partial, path)


def load(path: Path, weights_sha256: str) -> Calibration:
    """Read a calibration; refuse one of other weights."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: not a calibration file: {error}. Delete it.") from error
    if header.get("format") != FORMAT:
        raise UserError(f"{path}: not a calibration of this program. Delete it.")
    made_of = json.loads(header["facts"])["weights"]
    if made_of != weights_sha256:
        raise UserError(
            f"{path}: made from weights {made_of[:12]}…, and the model has {weights_sha256[:12]}…. "
            "Calibrate again with these weights."
        )
    return tensors
