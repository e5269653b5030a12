"""Settings of the whole process: a plugin that changes one would change the numbers of all later cells.

A cell has its own model, images and features; these settings are shared. Only `tta-bench verify` can find
code that replaces functions of PyTorch or attributes of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.modules import module as torch_module

HOOKS = ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_hooks")
SMALLEST = 5e-324  # a denormal number: zero where these are flushed


class ChangedSettings(RuntimeError):
    """A plugin changed a setting of the whole process and did not restore it."""


class Setting(NamedTuple):
    """One setting: its name, how to read it, and how to set it."""

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], Any]


def _attribute(owner: Any, name: str, shown: str) -> Setting:
    return Setting(shown, lambda: getattr(owner, name), lambda value: setattr(owner, name, value))


def _hooks() -> tuple[dict[int, Any], ...]:
    return tuple(dict(getattr(torch_module, name, {})) for name in HOOKS)


def _set_hooks(before: tuple[dict[int, Any], ...]) -> None:
    for name, hooks in zip(HOOKS, before, strict=True):
        found = getattr(torch_module, name, {})
        for added in set(found) - set(hooks):
            del found[added]


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
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
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
    """Raise ChangedSettings if the block changes a setting of the process, after restoring it."""
    before = [setting.get() for setting in SETTINGS]
    try:
        yield
    finally:
        after = [setting.get() for setting in SETTINGS]
        changed = []
        for setting, old, new in zip(SETTINGS, before, after, strict=True):
            if old != new:
                setting.set(old)
                values = "" if isinstance(old, (dict, tuple)) else f" ({old} to {new})"
                changed.append(f"{setting.name}{values}")
    if changed:
        raise ChangedSettings(
            f"{who} changed settings of the whole process: {', '.join(changed)}. Other cells would "
            "compute differently. They were restored; change them only inside a `with` block."
        )
