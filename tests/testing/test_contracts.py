"""The contract suite, over every registered plugin: a new one is tested on registration."""

from __future__ import annotations

from typing import Any

import pytest

from tta_bench import testing
from tta_bench.plugins import registry
from tta_bench.testing import method_checks
from tta_bench.testing.suite import MICRO_MODELS

PLUGINS = [(group, name) for group in registry.GROUPS for name in registry.names(group)]
# Their tests are in tests/models, without passes.
BIG = {"vit-b", "vit-b-torchvision", "vit-l", "resnet-50", "resnet-50-timm", "vim-s", "wrn-28-10"}
# The same code, with less of it to wait for.
QUICKER: dict[str, dict[str, Any]] = {
    "memo": {"views": 2},
    "foa": {"k": 4},
    "iabn": {"capacity": 4},
    "note": {"capacity": 4},
    "rotta": {"capacity": 4},
    "petta": {"capacity": 4},
    "rdumb": {"reset_every": 2},
    "pace": {"population": 4, "subspace": 24},
    "adalog": {"rounds": 1, "rows": 64},
    "ptq4vit": {"rounds": 1, "candidates": 20},
}


def test_methods_are_checked_on_a_gpu_with_every_network_that_they_support() -> None:
    title = str(method_checks.stays_on_its_device.__doc__).rstrip(".")
    subjects = [each.subject for each in testing.outcomes_of("methods", "neo") if each.check == title]
    assert subjects == list(MICRO_MODELS)


@pytest.mark.parametrize(("group", "name"), [p for p in PLUGINS if p[1] not in BIG])
def test_contract(group: str, name: str) -> None:
    testing.check(group, name, **QUICKER.get(name, {}))
