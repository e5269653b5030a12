"""The base of all plugins: fields are parameters, checked against their types on construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, ClassVar

from tta_bench.plugins.ranges import fit_fields_


class Plugin:
    """Base of all plugins. Bump `version` whenever the numbers a plugin produces change.

    Fields have their ranges in their types (`lr: Positive`). Whether a plugin is made from YAML or in
    Python, its fields are converted to their types before its own `__post_init__` runs.
    """

    version: ClassVar[str] = "1"
    paths: ClassVar[tuple[str, ...]] = ()  # fields that are paths on this machine, which are not part of keys
    # Fields that a later release has added, each with the value at which the plugin computes what it computed
    # before. At that value, identities leave the field out, so that results of earlier releases keep theirs.
    added: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init_subclass__(cls, **facts: Any) -> None:
        super().__init_subclass__(**facts)
        if "__post_init__" in vars(cls):
            cls.__post_init__ = _after_fitting(cls.__post_init__)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Check what ranges of single fields cannot express; raise ValueError."""
        fit_fields_(self)

    def title(self) -> str:
        """The name of its rows unless the file gives one; empty: the plugin's name."""
        return ""


def _after_fitting(check: Callable[..., None]) -> Callable[..., None]:
    """A plugin's own `__post_init__`, with its fields converted first even if it does not call the base's."""

    @wraps(check)
    def fit_and_check(self: Plugin, *given: Any) -> None:
        fit_fields_(self)
        check(self, *given)

    return fit_and_check
