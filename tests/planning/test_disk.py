"""Disk space of large grids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tta_bench import config, grid
from tta_bench.planning import disk


def test_the_network_of_many_cells_is_built_once(
    write_yaml: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = grid.expand(config.load(write_yaml(methods=["source", "tent", "t3a"], seeds=[1, 2, 3])))
    build, built = disk.skeleton, list[object]()
    monkeypatch.setattr(disk, "skeleton", lambda model: built.append(model) or build(model))
    assert disk.needed(cells).weights > 0
    assert len(cells) > len(built) == len({cell.model.digest for cell in cells})
