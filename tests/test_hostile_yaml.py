"""Arbitrary and hostile benchmark files: exit 2 and a message; never a traceback, a hang, or a run."""

from __future__ import annotations

import copy
import functools
import io
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import SMALL
from tta_bench import cli, registry

MANY = settings(
    max_examples=450,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
)
KEYS = ("name", "data", "models", "quantizers", "methods", "stream", "seeds", "run", "include", "presets")
SLOWEST_SECONDS = 10.0  # hundreds of times what any of these takes


@pytest.fixture(scope="module", autouse=True)
def _quick_registry() -> Iterator[None]:
    """Entry points are looked up once, not once a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_points", functools.cache(registry._points))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


def told(command: str, path: Path) -> tuple[int, str]:
    """Exit code and message of a command on a file."""
    results = path.parent / "results"
    arguments = ["tta-bench", command, str(path)] + (["--results", str(results)] if command == "run" else [])
    errors, start = io.StringIO(), time.monotonic()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(errors), redirect_stdout(io.StringIO()):
        patch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as end:
            cli.main()
    assert time.monotonic() - start < SLOWEST_SECONDS
    assert not results.exists(), "nothing was started"
    return int(end.value.code or 0), errors.getvalue()


def refused(content: str | bytes, folder: Path) -> str:
    """The message with which both commands refuse a file."""
    path = folder / "hostile.yaml"
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    messages = []
    for command in ("validate", "run"):
        code, message = told(command, path)
        assert code == 2, f"{command} ended with {code}: {message}\n{content!r}"
        assert "Traceback" not in message
        assert message.strip(), "a message"
        messages.append(message)
    assert messages[0] == messages[1]
    return messages[0]


# -- files that are no benchmark at all ------------------------------------------------------------


@MANY
@given(content=st.one_of(st.text(max_size=300), st.binary(max_size=300)))
def test_any_text_and_any_bytes(content: str | bytes, folder: Path) -> None:
    refused(content, folder)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.dates(),
    st.datetimes(),
    st.binary(max_size=8),
    st.sampled_from(["tent", "vit-micro", "cifar10-mini", "../..", "1e400", "=", "<<", "~", "0x", "1:2"]),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), SCALARS), inner, max_size=5),
    ),
    max_leaves=12,
)


@MANY
@given(tree=TREES)
def test_any_tree(tree: Any, folder: Path) -> None:
    refused(yaml.dump(tree), folder)


@MANY
@given(tree=st.fixed_dictionaries({}, optional={key: TREES for key in KEYS}))
def test_any_values_under_the_right_keys(tree: dict[str, Any], folder: Path) -> None:
    refused(yaml.dump(tree), folder)


# -- a good file with one thing wrong --------------------------------------------------------------

FULL = SMALL | {
    "methods": ["source", {"use": "tent", "name": "TENT", "lr": 0.01, "reset": "domain"}, {"use": "t3a", "filter_k": 5}],
    "include": [{"model": "resnet*"}],
    "exclude": [{"method": "lame", "bits": "W8A8", "seed": 3}],
    "presets": [{"method": "tent", "set": {"momentum": 0.8}}],
    "run": {"engine": "local", "workers": 1, "threads": 1, "checkpoint_minutes": 5.0, "cell_minutes": 60.0},
}


def paths(tree: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*here, key)
        yield from paths(value, (*here, key))


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    return functools.reduce(lambda here, key: here[key], path, tree)


PATHS = sorted(paths(FULL), key=str)
# Nothing in a benchmark file may be any of these, wherever it stands.
ALIENS = st.one_of(
    st.dictionaries(st.text("qxz", min_size=3, max_size=6), SCALARS, min_size=1, max_size=3),
    st.lists(st.dictionaries(st.text("qxz", min_size=3, max_size=6), SCALARS, min_size=1), min_size=1, max_size=2),
    st.lists(st.lists(SCALARS, max_size=2), min_size=1, max_size=2),
    st.sampled_from([float("nan"), float("inf"), -float("inf"), -(10**30), 10**400, -1e300, "", "a" * 5000, "\x07\n"]),
    st.dates(),
    st.binary(min_size=1, max_size=4),
)


@MANY
@given(path=st.sampled_from(PATHS), alien=ALIENS)
def test_a_value_that_cannot_be(path: tuple[Any, ...], alien: Any, folder: Path) -> None:
    tree = copy.deepcopy(FULL)
    at(tree, path[:-1])[path[-1]] = alien
    message = refused(yaml.safe_dump(tree), folder)
    assert str(path[0]) in message, f"the message does not say where: {message}"


@MANY
@given(
    path=st.sampled_from([(), *(p for p in PATHS if isinstance(at(FULL, p), dict))]),
    key=st.text("qxz", min_size=4, max_size=8),
    value=SCALARS,
)
def test_a_key_that_cannot_be(path: tuple[Any, ...], key: str, value: Any, folder: Path) -> None:
    tree = copy.deepcopy(FULL)
    at(tree, path)[key] = value
    assert key in refused(yaml.safe_dump(tree), folder)
