"""Results folders that nobody's run has written: refused or left out by name, never a traceback.

Of the cases below, the version before gave a traceback for 33, and a wrong table without a word for others.
"""

from __future__ import annotations

import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.helpers import report_results
from tests.helpers.misbehaving.repaints import SEQUENCE
from tests.helpers.report_results import Grid, Method
from tta_bench import cli
from tta_bench.report.build import as_data
from tta_bench.storage.checkpoints import Checkpoints, DamagedCheckpoint, _digest
from tta_bench.storage.status import StatusReader
from tta_bench.storage.store import ResultStore
from tta_bench.storage.watch import render

GRID = Grid(
    name="g",
    data="cifar10-mini",
    models=(("vit-micro", "vit-micro"),),
    methods=(Method("source", "source", 50), Method("TENT", "tent", 52, backwards=1)),
    domains=report_results.SHORT,
    bits=("FP32",),
    seeds=(1,),
    rounds=2,
)
KEY = "g-0-0-0-s1"
NAN, HUGE = float("nan"), 10**400
DEEP = b"[" * 100_000
ABSENT = object()
CONTROL = set("\x1b\x07\x9b\u202e\r")


@pytest.fixture(scope="module", autouse=True)
def _one_parser() -> Iterator[None]:
    """The command line is put together once, not once a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "app", typer.main.get_command(cli.app))
        patch.setattr("tta_bench.report.build.page", as_data)  # without megabytes of scripts
        yield


def called(*words: str | Path) -> tuple[int, str]:
    """Exit code of the command line, and all it has said; a traceback is an error of the test."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(said), redirect_stdout(said):
        patch.setattr(sys, "argv", ["tta-bench", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
    return int(end.value.code or 0), said.getvalue()


def looked_at(results: Path, other: Path) -> Iterator[tuple[int, str]]:
    """Every command that reads a results folder."""
    yield called("table", "--results", results)
    yield called("status", "--results", results)
    yield called("report", "--results", results, "--output", other / "page.html")
    yield called("merge", results, "--into", other / "merged")


def folder(path: Path) -> ResultStore:
    """A good folder."""
    return report_results.write(GRID, path / "results")


def changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The tree with another value at a place, or without the place."""
    if not path:
        return value
    here = tree
    for step in path[:-1]:
        here = here[step]
    if value is ABSENT:
        del here[path[-1]]
    else:
        here[path[-1]] = value
    return tree


def line(record: Any) -> bytes:
    text = record if isinstance(record, bytes) else json.dumps(record).encode()
    return text + b"\t%08x\n" % zlib.crc32(text)


# -- manifests ---------------------------------------------------------------------------------------

CELL = ("cells", 0)
MANIFESTS: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "a list": ((), [], "Input should be an object"),
    "nothing": ((), None, "Input should be an object"),
    "no cells": (("cells",), ABSENT, "cells: Field required"),
    "cells that are no list": (("cells",), {}, "cells: Input should be a valid array"),
    "a cell that is a text": (CELL, "x", "cells[0]: Input should be an object"),
    "no key": ((*CELL, "key"), ABSENT, "cells[0].key: Field required"),
    "a key that is a number": ((*CELL, "key"), 3, "cells[0].key: Input should be a valid string"),
    "a key that climbs": ((*CELL, "key"), "../../x", "cells[0].key: String should match pattern"),
    "no labels": ((*CELL, "labels"), ABSENT, "cells[0].labels: Field required"),
    "a label that is a list": ((*CELL, "labels", "method"), [1], "cells[0].labels.method: Input should be"),
    "an order of two": (
        (*CELL, "labels", "order"),
        [0, 0],
        "cells[0].labels.order: List should have at least 3",
    ),
    "an order of texts": ((*CELL, "labels", "order"), ["a"] * 3, "cells[0].labels.order[0]: Input should be"),
    "no domains": ((*CELL, "domains"), None, "cells[0].domains: Input should be a valid array"),
    "domains of three": (
        (*CELL, "domains"),
        [["fog", 5, 1]],
        "cells[0].domains[0]: Tuple should have at most",
    ),
    "a severity of nine": ((*CELL, "domains", 0), ["fog", 9], "cells[0].domains[0][1]: Input should be less"),
    "expected records as text": (
        (*CELL, "records_expected"),
        "six",
        "records_expected: Input should be a valid",
    ),
    "too few expected records": (
        (*CELL, "records_expected"),
        1,
        "records_expected is not rounds times domains",
    ),
    "no rounds": ((*CELL, "rounds"), 0, "cells[0].rounds: Input should be greater"),
    "rounds that are true": ((*CELL, "rounds"), True, "cells[0].rounds: Input should be a valid integer"),
    "a seed of 400 digits": ((*CELL, "seed"), HUGE, "cells[0].seed: Input should be less"),
    "a batch size that is no number": ((*CELL, "batch_size"), NAN, "cells[0].batch_size: Input should be"),
    "a million threads": ((*CELL, "threads"), 10**6, "cells[0].threads: Input should be less"),
    "an unknown reset": ((*CELL, "reset"), "often", "cells[0].reset: String should match"),
    "a plugin that is a text": ((*CELL, "method"), "tent", "cells[0].method: Input should be an object"),
    "parameters in a list": ((*CELL, "method", "params"), [], "cells[0].method.params: Input should be"),
    "no format": (("format",), ABSENT, "the folder has format 1, and this version reads formats 2 and 3"),
    "the next format": (("format",), 4, "the folder has format 4, and this version reads formats 2 and 3"),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_manifest_that_is_none_is_refused(case: str, tmp_path: Path) -> None:
    place, value, told = MANIFESTS[case]
    store = folder(tmp_path)
    path = store.folder / "benchmark.json"
    path.write_text(json.dumps(changed(json.loads(path.read_text()), place, value)))
    for code, said in looked_at(tmp_path / "results", tmp_path):
        assert code == 2
        assert said.startswith(f"{path}: ")
        assert told in said
        assert "Run the benchmark again" in said or "Choose another --results folder" in said
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe{}", DEEP, b'{"cells":' + DEEP, b"\0" * 100])
def test_a_manifest_that_is_no_json_is_refused(content: bytes, tmp_path: Path) -> None:
    path = folder(tmp_path).folder / "benchmark.json"
    path.write_bytes(content)
    for code, said in looked_at(tmp_path / "results", tmp_path):
        assert code == 2
        assert said.startswith(f"{path}: Invalid JSON")


def test_many_problems_are_counted(tmp_path: Path) -> None:
    path = folder(tmp_path).folder / "benchmark.json"
    path.write_text('{"format": 2, "version": "0", "cells": [{}]}')
    assert "and 15 more problems" in called("table", "--results", tmp_path / "results")[1]


def test_numbers_that_json_does_not_have_are_texts_on_the_page(tmp_path: Path) -> None:
    path = folder(tmp_path).folder / "benchmark.json"
    place = (*CELL, "method", "params")
    path.write_text(
        json.dumps(changed(json.loads(path.read_text()), place, {"lr": NAN, "deep": [{"x": NAN}]}))
    )
    assert [code for code, _ in looked_at(tmp_path / "results", tmp_path)] == [0] * 4


def test_parameters_that_a_method_does_not_have_are_told(tmp_path: Path) -> None:
    path = folder(tmp_path).folder / "benchmark.json"
    manifest = json.loads(path.read_text())
    for cell in manifest["cells"]:
        for name, group in (("data", "data"), ("model", "models"), ("quantizer", "quantizers")):
            cell[name]["group"] = group
        cell["method"] |= {"group": "methods", "params": {"foo": 1}}
    path.write_text(json.dumps(manifest))
    code, said = called("verify", "--results", tmp_path / "results", "--cells", "1")
    assert code == 2
    assert "does not work: TypeError" in said


# -- records ------------------------------------------------------------------------------------------

RECORDS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "a list": ((), []),
    "a number": ((), 3),
    "no key": (("key",), ABSENT),
    "another cell's key": (("key",), "g-0-0-1-s1"),
    "no status": (("status",), ABSENT),
    "an unknown status": (("status",), "great"),
    "no code": (("code",), ABSENT),
    "no images": (("images",), 0),
    "images as text": (("images",), "40"),
    "no correct": (("correct",), ABSENT),
    "a correct that is no number": (("correct",), NAN),
    "a correct of 400 digits": (("correct",), HUGE),
    "half a correct": (("correct",), 1.5),
    "fewer than none correct": (("correct",), -1),
    "more correct than images": (("correct",), 41),
    "more in the first five than images": (("top5_correct",), 41),
    "a domain that the cell does not have": (("corruption",), "sandstorm"),
    "another severity": (("severity",), 4),
    "a round that the cell does not have": (("round",), 3),
    "a round as text": (("round",), "1"),
    "round 0": (("round",), 0),
    "batches as text": (("correct_per_batch",), "abc"),
    "a list in a list of batches": (("correct_per_batch", 0), [1]),
    "seconds as text": (("seconds",), "long"),
    "negative seconds": (("seconds",), -1.0),
    "endless seconds": (("seconds",), float("inf")),
    "a calibration error of two": (("ece",), 2.0),
    "a fingerprint that is a list": (("fingerprint",), []),
    "a failure without a reason": ((), {"key": KEY, "status": "failed", "code": "c"}),
    "deeply nested": ((), DEEP),
    "not UTF-8": ((), b'{"key":"\xff"}'),
    "half a surrogate": ((), b'{"key":"\\ud800"}'),
}


@pytest.mark.parametrize("case", RECORDS)
def test_a_line_that_is_no_record_is_left_out_and_told(case: str, tmp_path: Path) -> None:
    place, value = RECORDS[case]
    store = folder(tmp_path)
    path = store.records_folder / f"{KEY}.jsonl"
    good = [json.loads(text.split("\t")[0]) for text in path.read_text().splitlines()]
    bad = changed(json.loads(json.dumps(good[1])), place, value)
    path.write_bytes(b"".join(map(line, [good[0], bad, *good[2:]])))
    assert store.manifest()["cells"]
    assert len(store.read(KEY)) == 5
    for code, said in looked_at(tmp_path / "results", tmp_path):
        assert code == 0, said
        assert f"{path}: 1 of 6 lines are torn or damaged and were left out" in said
    assert len(ResultStore(tmp_path / "merged", "g").read(KEY)) == 5


def test_what_is_read_and_written_again_stays_as_it_was(tmp_path: Path) -> None:
    """Also with fields that this version does not know."""
    store = folder(tmp_path)
    path = store.records_folder / f"{KEY}.jsonl"
    store.append(KEY, [store.read(KEY)[0] | {"of_a_later_version": {"b": 1, "a": [2]}}])
    before = path.read_bytes()
    store.keep(KEY, store.read(KEY))
    assert path.read_bytes() == before


DESCRIPTIONS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "a list": ((), []),
    "bytes as text": (("memory_bytes",), "x"),
    "negative bytes": (("packed_bytes",), -1),
    "no environments": (("environments",), ABSENT),
    "environments in a list": (("environments",), []),
    "an environment without a device": (("environments", "here", "device"), ABSENT),
    "no version of torch": (("environments", "here", "versions", "torch"), ABSENT),
    "code in a list": (("code",), [1]),
    "another cell's": (("key",), "g-0-0-1-s1"),
}


@pytest.mark.parametrize("case", DESCRIPTIONS)
def test_a_description_that_is_none_is_left_out_and_told(case: str, tmp_path: Path) -> None:
    place, value = DESCRIPTIONS[case]
    store = folder(tmp_path)
    path = store.cells_folder / f"{KEY}.json"
    path.write_bytes(line(changed(json.loads(path.read_text().split("\t")[0]), place, value)))
    assert store.description(KEY) is None
    told = list(looked_at(tmp_path / "results", tmp_path))
    assert [code for code, _ in told] == [0] * 4
    # `status` does not read descriptions
    assert [f"{path}: is damaged" in said for _, said in told] == [True, False, True, True]


# -- checkpoints --------------------------------------------------------------------------------------

HEADERS = [
    b"[]",
    b"{}",
    b'{"key":"a","place":1,"batch":0}',
    b'{"key":"a","place":"1","batch":0,"unlogged":[]}',
    b'{"key":"a","place":-1,"batch":0,"unlogged":[]}',
    b'{"key":"a","place":1,"batch":0,"unlogged":[],"more":1}',
    b'{"key":"a","place":1,"batch":0,"unlogged":[{}]}',
    b'{"key":"a","place":1,"batch":0,"unlogged":[{"key":"b","status":"failed","code":"","reason":""}]}',
    b'{"key":"b","place":1,"batch":0,"unlogged":[]}',
    b"\xff",
    DEEP,
]


@pytest.mark.parametrize("header", HEADERS)
def test_a_checkpoint_with_another_header_is_set_aside(header: bytes, tmp_path: Path) -> None:
    """Its digest is right: whoever forges a file knows how to compute one."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.folder.mkdir()
    path = checkpoints.folder / "a.checkpoint"
    path.write_bytes(_digest(header, b"\n", b"state") + header + b"\nstate")
    with pytest.raises(DamagedCheckpoint, match=r"a\.checkpoint: a damaged checkpoint was set aside"):
        checkpoints.load("a")
    assert checkpoints.load("a") is None


# -- anything at all ----------------------------------------------------------------------------------

ALIENS = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["ok", "failed", "../x", "\x1b[2J", HUGE, -HUGE, "fog"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(tree: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*here, key)
        yield from places(value, (*here, key))


FUZZED: dict[str, tuple[str, Callable[[Any], bytes]]] = {
    "manifest": ("benchmark.json", lambda tree: json.dumps(tree).encode()),
    "record": (f"records/{KEY}.jsonl", line),
    "description": (f"cells/{KEY}.json", line),
}


@pytest.mark.parametrize("kind", FUZZED)
def test_any_value_anywhere_is_dealt_with(kind: str, tmp_path: Path) -> None:
    name, encoded = FUZZED[kind]
    path = folder(tmp_path).folder / name
    good = path.read_bytes()
    tree = json.loads(good.split(b"\t")[0])
    rest = b"".join(good.splitlines(keepends=True)[1:]) if kind == "record" else b""
    ways = sorted(places(tree), key=str)

    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(place=st.sampled_from(ways), value=st.one_of(ALIENS, st.just(ABSENT)))
    def each(place: tuple[Any, ...], value: Any) -> None:
        path.write_bytes(encoded(changed(json.loads(json.dumps(tree)), place, value)) + rest)
        for words in (["table"], ["status"], ["merge", tmp_path / "results"]):
            where = "--into" if words[0] == "merge" else "--results"
            target = tmp_path / ("results" if words[0] != "merge" else "fuzzed")
            code, said = called(*words, where, target)
            assert code in (0, 2), said
            assert len(said) > 20, "a message"
            assert not set(said) & CONTROL

    each()


def test_names_and_reasons_of_a_folder_do_not_reach_the_terminal(tmp_path: Path) -> None:
    store = folder(tmp_path)
    manifest = json.loads((store.folder / "benchmark.json").read_text())
    labels = manifest["cells"][0]["labels"]
    labels |= {name: f"{name} {SEQUENCE}" for name in ("model", "quantizer", "method")}
    (store.folder / "benchmark.json").write_text(json.dumps(manifest))
    failure = {"key": KEY, "status": "failed", "code": report_results.CODE, "reason": f"x\n  why {SEQUENCE}"}
    store.append(KEY, [failure])
    hostile = (tmp_path / "results").rename(tmp_path / f"results {SEQUENCE}")
    for code, said in looked_at(hostile, tmp_path):
        assert code == 0, said
        assert "\\u001b[2J" in said or "page.html" in said
        assert not set(said) & CONTROL
    console = Console(file=io.StringIO(), width=200, color_system=None, force_terminal=True)
    view = StatusReader(ResultStore(hostile, "g")).read()
    console.print(render(view, None, console.size))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\\u001b[2J" in shown
    assert not set(shown) & CONTROL
