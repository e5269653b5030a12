"""The contract suite, over every registered plugin: a new one is tested on registration."""

from __future__ import annotations

from typing import Any

import pytest

from tta_bench import testing
from tta_bench.plugins import registry

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


@pytest.mark.parametrize(("group", "name"), [p for p in PLUGINS if p[1] not in BIG])
def test_contract(group: str, name: str) -> None:
    testing.check(group, name, **QUICKER.get(name, {}))
