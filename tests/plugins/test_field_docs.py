"""One line on every parameter, read from the comment of its field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from tta_bench.config import schema
from tta_bench.plugins import registry
from tta_bench.plugins.field_docs import field_docs
from tta_bench.plugins.ranges import field_types

GROUPS = [group for group in registry.GROUPS if group != "corruptions"]
SECTIONS = [
    kind
    for kind in vars(schema).values()
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind.__module__ == schema.__name__
]


@dataclass
class Base:
    """Not a field: its comment."""  # of the class

    lr: float = 0.1  # learning rate
    steps: int = 1
    # Two lines about
    # the third field.
    third: str = "# not a comment"

    # Nobody's comment.

    fourth: int = 0


@dataclass
class Derived(Base):
    lr: float = 0.2
    steps: int = (  # of a batch
        2
    )
    fourth: int = 1  #: of four


def test_comments_beside_and_above_are_found() -> None:
    assert field_docs(Base) == {"lr": "learning rate", "third": "Two lines about the third field."}


def test_a_field_keeps_the_comment_of_its_base() -> None:
    assert field_docs(Derived) == {**field_docs(Base), "fourth": "of four", "steps": "of a batch"}


def test_a_class_without_source_has_none() -> None:
    assert field_docs(type("Made", (), {"__annotations__": {"lr": float}})) == {}


@pytest.mark.parametrize(("group", "name"), [(g, n) for g in GROUPS for n in registry.names(g)])
def test_every_parameter_has_a_line(group: str, name: str) -> None:
    plugin = registry.load(group, name)
    assert set(field_types(plugin)) <= set(field_docs(plugin)), "write a comment beside each field"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_field_of_a_benchmark_file_has_a_line(section: Any) -> None:
    assert set(section.model_fields) <= set(field_docs(section))
