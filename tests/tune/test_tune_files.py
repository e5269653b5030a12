"""Ledgers and presets files that no search has written, and searches of two machines in one folder."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tune.test_tune import benchmark, goal
from tta_bench.errors import UserError
from tta_bench.storage.merge import merge
from tta_bench.storage.store import ResultStore
from tta_bench.tune import presets_file
from tta_bench.tune.ledger import Ledger


def searched(folder: Path, *accuracies: float) -> Ledger:
    """A ledger with one trial, which has been through so many domains."""
    store = ResultStore(folder, "small.tune")
    store.open([]).release()
    ledger = Ledger(store, goal())
    ledger.begin(0, goal().params(0), "code")
    for step, accuracy in enumerate(accuracies):
        ledger.step(0, step, accuracy, 96)
    return ledger


def line(event: Any) -> bytes:
    text = json.dumps(event).encode()
    return text + b"\t%08x\n" % zlib.crc32(text)


# -- ledgers -----------------------------------------------------------------------------------------

EVENTS: list[Any] = [
    [],
    {"event": "begin"},
    {"event": "begin", "number": -1, "params": {}, "code": ""},
    {"event": "begin", "number": 1, "params": [], "code": ""},
    {"event": "step", "number": 0, "step": 3, "accuracy": 101.0, "spent": 1},
    {"event": "step", "number": 0, "step": 3, "accuracy": float("nan"), "spent": 1},
    {"event": "step", "number": 0, "step": "3", "accuracy": 1.0, "spent": 1},
    {"event": "step", "number": 0, "step": 3, "accuracy": 1.0, "spent": 10**400},
    {"event": "end", "number": 0, "how": "well", "reason": ""},
    {"event": "party", "number": 0},
    {"number": 0},
]


@pytest.mark.parametrize("event", EVENTS)
def test_a_line_that_is_no_event_is_left_out_and_told(event: Any, tmp_path: Path) -> None:
    ledger = searched(tmp_path, 50.0, 60.0)
    path = ledger.store.records_folder / f"{ledger.key}.jsonl"
    named = {"key": ledger.key} | event if isinstance(event, dict) else event
    path.write_bytes(path.read_bytes() + line(named))
    again = Ledger(ResultStore(tmp_path, "small.tune"), goal())
    assert again.trials == ledger.trials
    assert f"{path}: 1 of 4 lines are torn or damaged" in again.store.damage[path]


def test_events_of_a_trial_whose_beginning_is_damaged_are_left_out(tmp_path: Path) -> None:
    ledger = searched(tmp_path, 50.0)
    path = ledger.store.records_folder / f"{ledger.key}.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"begin"', b'"bagin"'))
    assert Ledger(ResultStore(tmp_path, "small.tune"), goal()).trials == {}


def test_the_search_that_went_further_comes_along(tmp_path: Path) -> None:
    """Before: merging a folder with a search ended in a traceback."""
    searched(tmp_path / "A", 50.0)
    further = searched(tmp_path / "B", 50.0, 60.0)
    merge([tmp_path / "A", tmp_path / "B"], tmp_path / "C")
    assert Ledger(ResultStore(tmp_path / "C", "small.tune"), goal()).trials == further.trials


def test_searches_that_went_different_ways_are_not_merged(tmp_path: Path) -> None:
    searched(tmp_path / "A", 50.0, 70.0)
    searched(tmp_path / "B", 50.0, 60.0)
    with pytest.raises(UserError, match=r"the search took other steps in .*B.* than in .*A"):
        merge([tmp_path / "A", tmp_path / "B"], tmp_path / "C")
    assert not (tmp_path / "C").exists()


# -- presets -----------------------------------------------------------------------------------------


def written(folder: Path, *steps: Any, value: Any) -> Path:
    """A sealed presets file with another value at one place."""
    ledger = searched(folder / "results", 50.0, 60.0, 50.0, 60.0)
    ledger.end(0, "complete")
    body = presets_file.content("small", 1500, [ledger])
    here: Any = body
    for step in steps[:-1]:
        here = here[step]
    here[steps[-1]] = value
    path = folder / "presets.yaml"
    path.write_text(yaml.safe_dump(body | {"seal": presets_file.seal(body)}))
    return path


@pytest.mark.parametrize(
    ("steps", "value", "told"),
    [
        (("format",), 2, "was written by another version. Write it again"),
        (("presets", 0, "accuracy"), 101.0, "presets.0.accuracy"),
        (("presets", 0, "accuracy"), float("nan"), "presets.0.accuracy"),
        (("presets", 0, "set"), {"lr": {"a": {"b": 1}}}, r"presets[0].set.lr"),
        (("presets", 0, "given"), [], "presets.0.given"),
        (("presets",), {}, "presets"),
        (("tuned_on", "seed"), -1, "tuned_on.seed"),
    ],
)
def test_a_presets_file_that_is_none_is_refused(
    steps: tuple[Any, ...], value: Any, told: str, tmp_path: Path
) -> None:
    path = written(tmp_path, *steps, value=value)
    with pytest.raises(UserError) as error:
        presets_file.applied(benchmark(), path)
    assert str(error.value).startswith(f"{path}: {told}")


def test_keys_of_two_types_are_no_traceback(tmp_path: Path) -> None:
    """Before: the seal of such a file could not be computed."""
    path = written(tmp_path, "benchmark", value="small")
    text = path.read_text()
    path.write_text(text.replace("momentum: 0.9", "momentum: {1: 2, a: 3}"))
    assert path.read_text() != text
    with pytest.raises(UserError, match=r"presets\.0\.given"):
        presets_file.applied(benchmark(), path)


def test_a_presets_file_of_the_version_before_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "benchmark", value="small")
    path.write_text(path.read_text().replace("format: 1\n", ""))
    with pytest.raises(UserError, match=r"was written by another version\. Write it again"):
        presets_file.applied(benchmark(), path)
