"""What is in the tree is in the package."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_every_package_of_the_tree_is_installed() -> None:
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {
        ".".join([name, *file.parent.relative_to(ROOT / folder).parts])
        for name, folder in setup["package-dir"].items()
        for file in (ROOT / folder).rglob("__init__.py")
    }
    assert found == set(setup["packages"])
