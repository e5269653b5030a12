"""Whatever one cell's plugins do, no other cell's number moves."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from tests.conftest import SMALL
from tests.helpers.misbehaving import install
from tests.helpers.misbehaving.meddling import Setting, Where
from tta_bench import config, grid, testing
from tta_bench.execution.executor import Executor
from tta_bench.execution.messages import Start
from tta_bench.planning.sharing import resolve
from tta_bench.plugins.isolation import SETTINGS, ChangedSettings, settings_kept

ENTRY_POINTS = """
[tta_bench.methods]
meddles = misbehaving.meddling:Meddles
changes-settings = misbehaving.meddling:ChangesSettings
noisy = misbehaving.meddling:Noisy
[tta_bench.quantizers]
loosens-precision = misbehaving.meddling:LoosensPrecision
"""
pytestmark = pytest.mark.usefixtures("no_bytes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("plugins"), ENTRY_POINTS)


@pytest.fixture(autouse=True)
def _installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(folder))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "misbehaving"]:
        del sys.modules[name]


def records(methods: Sequence[Any], share: bool = True, **changes: Any) -> dict[str, list[dict[str, Any]]]:
    """The records of each row, computed in one process, one after the other."""
    cells = grid.expand(config.parse(SMALL | {"quantizers": ["fp32"], "methods": methods} | changes))
    executor = Executor()
    found: dict[str, list[dict[str, Any]]] = {}
    for group in [cells] if share else [[cell] for cell in cells]:
        names = {cell.key: cell.labels.method for cell in group}
        for delivery in executor.run([resolve(cell) for cell in group], [Start(described=True)] * len(group)):
            found.setdefault(names[delivery.key], []).extend(delivery.records)
    return found


def correct(rows: list[dict[str, Any]]) -> list[int]:
    assert {row["status"] for row in rows} == {"ok"}, rows[0].get("reason")
    return [row["correct"] for row in rows]


@cache
def undisturbed() -> dict[str, list[int]]:
    """What is right in each domain when no plugin misbehaves."""
    return {name: correct(rows) for name, rows in records(["source", "shift", "bn-adapt"]).items()}


@pytest.mark.parametrize("where", get_args(Where))
def test_a_method_cannot_move_the_numbers_of_those_it_shares_features_with(where: str) -> None:
    """Before: Source had 5 instead of 9 right, or 3, 4 and 21 instead of 15."""
    expected = undisturbed()
    beside = records([{"use": "meddles", "where": where}, *expected])
    for name, hits in expected.items():
        assert correct(beside[name]) == hits


@pytest.mark.parametrize("where", get_args(Where))
def test_a_feature_consumer_gets_the_same_features_shared_or_not(where: str) -> None:
    meddler = {"use": "meddles", "where": where}
    assert correct(records(["source", meddler])["meddles"]) == correct(records([meddler])["meddles"])


@pytest.mark.parametrize("at", ["setup", "step"])
@pytest.mark.parametrize("setting", get_args(Setting))
def test_who_changes_a_setting_of_the_process_fails_and_nobody_else(setting: str, at: str) -> None:
    expected = undisturbed()["source"]
    before = [each.get() for each in SETTINGS]
    guilty = {"use": "changes-settings", "setting": setting, "at": at}
    found = records([guilty, "source"], share=False)
    assert [each.get() for each in SETTINGS] == before
    (failure,) = found["changes-settings"]
    assert failure["status"] == "failed"
    assert "method changes-settings changed settings of the whole process" in failure["reason"]
    assert correct(found["source"]) == expected


def test_a_quantizer_that_changes_a_setting_is_named() -> None:
    found = records(["source"], quantizers=["loosens-precision"], share=False)
    assert "quantizer loosens-precision changed settings" in found["source"][0]["reason"]
    assert torch.get_float32_matmul_precision() == "highest"


def test_settings_are_put_back_when_the_block_raises() -> None:
    with pytest.raises(TypeError), settings_kept("a test"):
        torch.set_default_dtype(torch.float64) or torch.set_default_dtype("no dtype")
    assert torch.get_default_dtype() is torch.float32


def test_settings_changed_and_put_back_are_no_matter() -> None:
    with settings_kept("a test"), torch.enable_grad():
        torch.set_default_dtype(torch.float64)
        torch.set_default_dtype(torch.float32)
    with pytest.raises(ChangedSettings, match="default dtype"), settings_kept("a test"):
        torch.set_default_dtype(torch.float16)


def test_rounds_that_repeat_are_the_same_computed_or_copied() -> None:
    """Before: the seeds of the global generators held the round, so sharing changed the numbers."""
    cells = grid.expand(config.parse(SMALL | {"quantizers": ["fp32"], "methods": ["noisy"]}))
    found = []
    for share in (True, False):
        deliveries = Executor().run([resolve(cell, share) for cell in cells], [Start(described=True)])
        found.append([(r["round"], r["corruption"], r["correct"]) for d in deliveries for r in d.records])
    assert sorted(found[0]) == sorted(found[1])
    assert len({hits for _, _, hits in found[0]}) > 1


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("changes-settings", {"setting": "dtype"}),
        ("meddles", {"where": "features"}),
        ("meddles", {"where": "train"}),
    ],
)
def test_the_contract_suite_tells(name: str, params: dict[str, str]) -> None:
    with pytest.raises(testing.ContractBroken):
        testing.check("methods", name, **params)
