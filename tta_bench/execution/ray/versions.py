"""The versions that must be equal on all nodes. Imports no torch: a node may lack it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

LIBRARIES = ("torch", "timm")  # sums differ between their releases


def versions() -> dict[str, str]:
    """The versions here, without the name of a build such as +cu126."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2])}
    for name in LIBRARIES:
        try:
            found[name] = version(name).partition("+")[0]
        except PackageNotFoundError:
            found[name] = ""
    return found


def other_versions(wanted: Mapping[str, str]) -> list[str]:
    """What has another version here than on the driver, or is missing, each with a remedy."""
    here = versions()
    return [
        f"{f'{name} {here[name]}' if here[name] else f'no {name}'} is installed, and the run started with "
        f"{name} {wanted[name]}. Install {name} {wanted[name]} there"
        for name in wanted
        if here[name] != wanted[name]
    ]
