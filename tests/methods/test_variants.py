"""`variant` is `corrected` or `released` in every method that has published code to differ from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tta_bench.config import load
from tta_bench.errors import ConfigError
from tta_bench.plugins import registry
from tta_bench.plugins.ranges import field_types

METHODS = ("zoa", "foa", "sar", "cotta", "fozo", "pea")


@pytest.mark.parametrize("name", METHODS)
def test_all_methods_spell_it_alike(name: str) -> None:
    plugin = registry.load("methods", name)
    assert field_types(plugin)["variant"].schema["enum"] == ["corrected", "released"]
    assert plugin().variant == "corrected"


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("former", "now"), [("as_released", "released"), ("foa", "released"), ("official", "corrected")]
)
def test_a_former_name_is_refused_with_the_present_one(name: str, former: str, now: str) -> None:
    with pytest.raises(ValueError, match=f"variant: '{former}' does not fit: it is now called '{now}'."):
        registry.load("methods", name)(variant=former)


def test_a_file_with_a_former_name_is_told_where_it_stands(write_yaml: Callable[..., Path]) -> None:
    path = write_yaml(methods=["source", {"use": "sar", "variant": ["official", "foa"]}])
    with pytest.raises(ConfigError) as told:
        load(path)
    assert str(told.value).split("\n") == [
        f"{path}: methods[1].variant: 'official' does not fit: it is now called 'corrected'.",
        f"{path}: methods[1].variant: 'foa' does not fit: it is now called 'released'.",
    ]
