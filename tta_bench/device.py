"""Which device a process computes on, and what makes a GPU's sums come out the same every time."""

from __future__ import annotations

import os

import torch

from tta_bench.errors import UserError


def chosen(wanted: str) -> torch.device:
    """The device for `auto`, `cpu` or `cuda`; auto is a GPU wherever this process sees one."""
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError(
            "run.device is cuda, and PyTorch sees no GPU here. `tta-bench doctor` shows what it sees; "
            "--device cpu does without."
        )
    _make_reproducible()
    return torch.device("cuda")


def name(device: torch.device) -> str:
    """What a record says of where its numbers were made."""
    return "cpu" if device.type == "cpu" else f"{device.type} ({torch.cuda.get_device_name(device)})"


def _make_reproducible() -> None:
    """A cell that goes on from a checkpoint must end with the numbers of one that was never stopped."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False  # or convolutions choose their algorithm by a race
    torch.backends.cudnn.allow_tf32 = False  # FP32 means FP32, as on a CPU
    torch.backends.cuda.matmul.allow_tf32 = False
