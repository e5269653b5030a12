"""Published lists of validation images that some papers report on instead of all 50 000."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.resources import files
from typing import Literal

Subset = Literal["all", "robustbench-5000"]
ALL: Subset = "all"
_FILES = {
    "robustbench-5000": (
        "robustbench/imagenet-5000.txt",
        "49cc660768bb59fb01b0b6b0b9858489592dc1a6dbbc86dfc7e62edcc843a656",
    ),
}


@lru_cache(maxsize=2)
def listed(subset: str) -> tuple[str, ...]:
    """The images of a subset, `class folder/file`, in the published order; none for `all`."""
    if subset == ALL:
        return ()
    name, sha256 = _FILES[subset]
    return checked((files("tta_bench") / "assets" / name).read_bytes(), name, sha256)


def checked(content: bytes, name: str, sha256: str) -> tuple[str, ...]:
    """The lines of a list; ValueError if it is not the published one. Line endings do not matter."""
    lines = tuple(content.decode().split())
    if hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest() != sha256:
        raise ValueError(f"{name}: is not the published list. Reinstall tta-bench.")
    return lines
