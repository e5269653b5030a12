"""Scenarios that are not built in, for tests of the harness."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import scenarios


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The scenarios of `tests.helpers.scenarios`, known as plugins."""
    folder = scenarios.install(tmp_path_factory.mktemp("outside"))
    monkeypatch.syspath_prepend(folder)
    return folder
