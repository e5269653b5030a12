"""Arbitrary and hostile benchmark files: exit 2 and a message; never a traceback, a hang, or a run."""

from __future__ import annotations

import copy
import functools
import io
import re
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import SMALL
from tta_bench import cli

GENERATING = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
)
KEYS = ("name", "data", "models", "quantizers", "methods", "stream", "seeds", "run", "include", "presets")
SLOWEST_SECONDS = 10.0  # hundreds of times what any of these takes


@pytest.fixture(scope="module", autouse=True)
def _one_parser() -> Iterator[None]:
    """The command line is put together once, not once a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "app", typer.main.get_command(cli.app))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


def told(command: str, path: Path, results: Path) -> tuple[int, str]:
    """Exit code and message of a command on a file."""
    start = time.monotonic()
    outcome = called([command, str(path), *(["--results", str(results)] if command == "run" else [])])
    assert time.monotonic() - start < SLOWEST_SECONDS
    assert not results.exists(), "nothing was started"
    return outcome


def called(words: list[str]) -> tuple[int, str]:
    """Exit code and message of the command line."""
    errors = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(errors), redirect_stdout(io.StringIO()):
        patch.setattr(sys, "argv", ["tta-bench", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
    return int(end.value.code or 0), errors.getvalue()


def refused(content: str | bytes, folder: Path) -> str:
    """The message with which both commands refuse a file."""
    path = folder / "hostile.yaml"
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    return refused_file(path, folder / "results")


def refused_file(path: Path, results: Path) -> str:
    messages = []
    for command in ("validate", "run"):
        code, message = told(command, path, results)
        assert code == 2, f"{command} ended with {code}: {message}"
        assert "Traceback" not in message
        assert len(message.strip()) > 20, "a message"
        assert max(map(len, message.splitlines())) < 1500, "that can be read"
        messages.append(message)
    assert messages[0] == messages[1]
    return messages[0]


# -- files that are no benchmark at all, and a good one with one thing wrong --------------------------

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


FULL = SMALL | {
    "methods": [
        "source",
        {"use": "tent", "name": "TENT", "lr": 0.01, "reset": "domain"},
        {"use": "t3a", "filter_k": 5},
    ],
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
    st.lists(
        st.dictionaries(st.text("qxz", min_size=3, max_size=6), SCALARS, min_size=1), min_size=1, max_size=2
    ),
    st.lists(st.lists(SCALARS, max_size=2), min_size=1, max_size=2),
    st.sampled_from([float("nan"), float("inf"), -float("inf"), "", "a" * 5000, "\x07\n"]),
    st.dates(),
    st.binary(min_size=1, max_size=4),
)


def changed(path: tuple[Any, ...], key: Any, value: Any) -> str:
    """The good file with one value put into it."""
    tree = copy.deepcopy(FULL)
    at(tree, path)[key] = value
    return yaml.safe_dump(tree)


MAPPINGS = [(), *(path for path in PATHS if isinstance(at(FULL, path), dict))]
ALIEN_KEYS = st.text("qxz", min_size=4, max_size=8)
# Files, each with what its message has to say.
GENERATED: dict[str, st.SearchStrategy[tuple[str | bytes, str]]] = {
    "any text and any bytes": st.one_of(st.text(max_size=300), st.binary(max_size=300)).map(
        lambda c: (c, "")
    ),
    "any tree": TREES.map(lambda tree: (yaml.dump(tree), "")),
    "any values under the right keys": st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, TREES)).map(
        lambda tree: (yaml.dump(tree), "")
    ),
    "a value that cannot be": st.builds(
        lambda path, alien: (changed(path[:-1], path[-1], alien), rf"{path[0]}|line \d+"),
        st.sampled_from(PATHS),
        ALIENS,
    ),
    "a key that cannot be": st.builds(
        lambda path, key, value: (changed(path, key, value), rf"{key}|line \d+"),
        st.sampled_from(MAPPINGS),
        ALIEN_KEYS,
        SCALARS,
    ),
}


@pytest.mark.parametrize("kind", GENERATED)
@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_generated_files_are_refused(count: int, kind: str, folder: Path) -> None:
    different = set()

    @settings(GENERATING, max_examples=count)
    @given(case=GENERATED[kind])
    def each(case: tuple[str | bytes, str]) -> None:
        content, expected = case
        different.add(content)
        message = refused(content, folder)
        assert re.search(expected, message), f"the message does not say where: {message}"

    each()
    assert len(different) >= 0.8 * count


# -- what people and enemies write ------------------------------------------------------------------

GOOD = "name: a\ndata: cifar10-mini\nmodels: [resnet-micro]\nmethods: [source]\n"
SWEEP = ", ".join(map(str, range(1000)))
BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
)
WRITTEN = {
    "empty": ("", "must be a mapping"),
    "a list": ("- source\n- tent\n", "must be a mapping"),
    "a text": ("benchmark", "must be a mapping"),
    "two documents": (GOOD + "---\n" + GOOD, "not valid YAML"),
    "tabs": ("name:\ta\n\tdata: b\n", "not valid YAML"),
    "an open bracket": ("name: [a", "not valid YAML"),
    "a hundred thousand brackets": ("[" * 100_000, "not valid YAML"),
    "three thousand nested mappings": ("{a: " * 3000, "not valid YAML"),
    "a key twice": (GOOD + "name: b\n", 'key "name" is given twice'),
    "a list as a key": ("? [a, b]\n: 1\n" + GOOD, "not valid YAML"),
    "an alias": ("a: &x [1]\n" + GOOD.replace("[source]", "*x"), "aliases"),
    "an alias of itself": ("a: &x [*x]\n", "aliases"),
    "a bomb of aliases": (BOMB, "aliases"),
    "a merge": ("<<: {name: a}\n" + GOOD, "merge is not supported"),
    "a Python object": (GOOD + "run: !!python/object/apply:os.system [touch hacked]\n", "not supported"),
    "a Python name": (GOOD.replace("[source]", "!!python/name:os.system"), "not supported"),
    "a set": (GOOD.replace("[source]", "!!set {source}"), "set is not supported"),
    "binary": (GOOD.replace("name: a", "name: !!binary aGk="), "binary is not supported"),
    "a date": (GOOD.replace("name: a", "name: 2025-01-01"), "timestamp is not supported"),
    "a name that climbs": (GOOD.replace("name: a", "name: ../../etc"), "name: may hold letters"),
    "a name that is the folder above": (GOOD.replace("name: a", "name: .."), "name: may hold letters"),
    "an absolute name": (GOOD.replace("name: a", "name: /etc/passwd"), "name: may hold letters"),
    "a name with a zero byte": (GOOD.replace("name: a", 'name: "a\\0b"'), "name: may hold letters"),
    "a name with a line break": (GOOD.replace("name: a", 'name: "a\\n"'), "name: may hold letters"),
    "a hidden name": (GOOD.replace("name: a", "name: .ssh"), "name: may hold letters"),
    "a name too long": (GOOD.replace("name: a", "name: " + "a" * 101), "name: may hold letters"),
    "a name that is a number": (GOOD.replace("name: a", "name: 7"), "name: 7 does not fit"),
    "a row that repaints the terminal": (
        GOOD.replace("[source]", '[{use: source, name: "\\e[31mred"}]'),
        "cannot be printed",
    ),
    "a row of two lines": (GOOD.replace("[source]", '[{use: source, name: "a\\nb"}]'), "cannot be printed"),
    "markup in a plugin's name": (GOOD.replace("source", "<script>"), 'unknown method "<script>"'),
    "a path as a plugin": (GOOD.replace("resnet-micro", "../model.pt"), 'unknown model "../model.pt"'),
    "a million rows": (
        GOOD.replace("[source]", f"[{{use: tent, lr: [{SWEEP}], momentum: [{SWEEP}]}}]"),
        "more than 1000",
    ),
    "a billion rows": (
        GOOD.replace("resnet-micro", "resnet-micro, vit-micro, vim-micro").replace(
            "[source]", f"[{{use: tent, lr: [{SWEEP}]}}]"
        )
        + f"seeds: [{SWEEP}]\nquantizers: [{{use: uniform, bits: [W8A8, W6A6, W4A4]}}]\n",
        "100",
    ),
    "twenty thousand methods": (GOOD.replace("source", ", ".join(["source"] * 20_000)), "at most 1000"),
    "five thousand corruptions": (
        GOOD + f"stream: {{corruptions: [{', '.join(['fog'] * 5000)}]}}\n",
        "at most 200",
    ),
    "an empty sweep": (GOOD.replace("[source]", "[source, {use: tent, lr: []}]"), "an empty list"),
    "no models": (GOOD.replace("[resnet-micro]", "[]"), "models"),
    "a truth value for a number": (GOOD + "stream: {rounds: true}\n", "not true or false"),
    "half a round": (GOOD + "stream: {rounds: 2.5}\n", "stream.rounds: 2.5"),
    "batches of nothing": (GOOD + "stream: {batch_size: 0}\n", "stream.batch_size: 0"),
    "no images": (GOOD + "stream: {limit: 0}\n", "stream.limit: 0"),
    "a number of 6000 digits": (GOOD + f"seeds: [0x{'f' * 6000}]\n", "very many digits"),
    "a number of 5000 digits": (GOOD + f"seeds: [{'9' * 5000}]\n", "not valid YAML"),
    "a negative seed": (GOOD + "seeds: [-1]\n", "seeds[0]"),
    "a learning rate that is not a number": (GOOD.replace("source", "{use: tent, lr: .nan}"), "finite"),
    "no time at all": (GOOD + "run: {cell_minutes: 0}\n", "run.cell_minutes: 0"),
    "a data set that does not fit": (GOOD.replace("resnet-micro", "resnet-50"), "1000 classes"),
    "a megabyte": (GOOD + "# " + "x" * 10**6, "longer than"),
    "not UTF-8": (b"name: \xff\xfe", "UTF-8"),
    "zero bytes": (b"\0" * 1000, "not valid YAML"),
}


def test_enough_was_written_by_hand() -> None:
    assert len(WRITTEN) >= 30


@pytest.mark.parametrize("case", WRITTEN)
def test_what_people_and_enemies_write(case: str, folder: Path) -> None:
    content, expected = WRITTEN[case]
    assert expected in refused(content, folder)
    assert not list(folder.glob("**/hacked"))
    assert not Path("hacked").exists()


def test_the_file_they_change_is_a_good_one(folder: Path) -> None:
    (folder / "good.yaml").write_text(yaml.safe_dump(FULL))
    assert told("validate", folder / "good.yaml", folder / "results") == (0, "")


@pytest.mark.parametrize("name", ["/dev/zero", "/", "/proc/self/mem", "no such file.yaml", "a" * 300])
def test_what_is_no_file_at_all(name: str, folder: Path) -> None:
    refused_file(Path(name), folder / "results")


@pytest.mark.parametrize(
    "name", ["--help.yaml", "a b\n[red]c.yaml", "<b>&.yaml", "ünï💥.yaml", "$(touch hacked).yaml"]
)
def test_hostile_file_names_are_only_names(name: str, folder: Path) -> None:
    (folder / name).write_text("name: [")
    message = refused_file(folder / name, folder / "results")
    assert name in message
    assert not Path("hacked").exists()


@pytest.mark.parametrize(
    "value", ["[", "!!python/name:os.system", "&a [*a]", "{a: 1, a: 2}", "0x" + "f" * 6000]
)
@pytest.mark.parametrize(
    "flags",
    [
        ["run", "FILE", "-o", "seeds=VALUE"],
        ["memory", "--model", "vit-micro", "--method", "t3a", "--set", "filter_k=VALUE"],
    ],
)
def test_hostile_values_on_the_command_line(flags: list[str], value: str, folder: Path) -> None:
    (folder / "good.yaml").write_text(GOOD)
    words = [word.replace("VALUE", value).replace("FILE", str(folder / "good.yaml")) for word in flags]
    code, message = called(words)
    assert code == 2
    assert "Traceback" not in message
