"""Settings of the whole process, which one cell's plugins could leave changed for all cells after it.

A cell has its own model, images and features. These settings are what is left to share, besides what only
`tta-bench verify` can find: code that replaces functions of PyTorch or attributes of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.modules import module as torch_module

SMALLEST = 5e-324  # a denormal number: zero where these are flushed


class ChangedSettings(RuntimeError):
    """A plugin has changed a setting of the whole process and not put it back."""


class Setting(NamedTuple):
    """One setting: its name, how to read it, and how to put it back."""

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], Any]


def _attribute(owner: Any, name: str, shown: str) -> Setting:
    return Setting(shown, lambda: getattr(owner, name), lambda value: setattr(owner, name, value))


def _hooks() -> tuple[dict[int, Any], ...]:
    names = ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_hooks")
    return tuple(dict(getattr(torch_module, name, {})) for name in names)


def _set_hooks(before: tuple[dict[int, Any], ...]) -> None:
    names = ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_hooks")
    for name, hooks in zip(names, before, strict=True):
        found = getattr(torch_module, name, {})
        for added in set(found) - set(hooks):
            del found[added]


def _set_deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


SETTINGS = (
    Setting("torch threads", torch.get_num_threads, torch.set_num_threads),
    Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("default device", torch.get_default_device, torch.set_default_device),
    Setting("grad mode", torch.is_grad_enabled, torch._C._set_grad_enabled),
    Setting(
        "autocast", lambda: torch.is_autocast_enabled("cpu"), lambda v: torch.set_autocast_enabled("cpu", v)
    ),
    Setting("matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    Setting(
        "deterministic algorithms",
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        _set_deterministic,
    ),
    Setting("anomaly detection", torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    Setting("denormal numbers", lambda: SMALLEST * 1.0 != 0, lambda kept: torch.set_flush_denormal(not kept)),
    _attribute(torch.backends.cudnn, "enabled", "cuDNN"),
    _attribute(torch.backends.cudnn, "benchmark", "cuDNN benchmark"),
    _attribute(torch.backends.cudnn, "deterministic", "cuDNN deterministic"),
    _attribute(torch.backends.cudnn, "allow_tf32", "cuDNN TF32"),
    _attribute(torch.backends.cuda.matmul, "allow_tf32", "CUDA TF32"),
    Setting("global module hooks", _hooks, _set_hooks),
    Setting("NumPy error handling", np.geterr, lambda value: np.seterr(**value)),
)


@contextmanager
def settings_kept(who: str) -> Iterator[None]:
    """Raise if the block leaves a setting of the process changed, with it put back as it was."""
    before = [setting.get() for setting in SETTINGS]
    try:
        yield
    finally:
        after = [setting.get() for setting in SETTINGS]
        changed = _put_back(before, after) if after != before else []
    if changed:
        raise ChangedSettings(
            f"{who} has changed settings of the whole process: {', '.join(changed)}. Other cells would "
            "compute differently. They were put back; change them only inside a `with` block."
        )


def _put_back(before: list[Any], after: list[Any]) -> list[str]:
    """Restore what differs; return it in words."""
    changed = []
    for setting, old, new in zip(SETTINGS, before, after, strict=True):
        if old != new:
            setting.set(old)
            changed.append(
                setting.name if isinstance(old, (dict, tuple)) else f"{setting.name} ({old} to {new})"
            )
    return changed
