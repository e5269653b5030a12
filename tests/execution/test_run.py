"""Runs end to end: both engines, resume, failures, and the tables at the end of the line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.conftest import SMALL
from tests.helpers.command import tta_bench
from tta_bench import config, grid
from tta_bench.api import Domain, Method
from tta_bench.execution import run
from tta_bench.execution.executor import Executor
from tta_bench.execution.messages import RunPolicy
from tta_bench.execution.progress import RunProgress
from tta_bench.planning.sharing import resolve
from tta_bench.plugins import registry
from tta_bench.storage.store import ResultStore
from tta_bench.tables import frame

Write = Callable[..., Path]


def csv(results: Path, layout: str = "long-term") -> str:
    outcome = tta_bench(
        "table", "--results", results, "--layout", layout, "--format", "csv", "--columns", "ece"
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A benchmark file and its results from the local engine."""
    folder = tmp_path_factory.mktemp("run")
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    outcome = tta_bench("run", path, "--engine", "local", "--results", folder / "local")
    assert outcome.returncode == 0, outcome.stderr
    return path, folder / "local"


def test_every_cell_has_a_record_for_every_round_and_domain(finished: tuple[Path, Path]) -> None:
    rows = frame.load(ResultStore(finished[1], "small"))
    ok = rows[rows.status == "ok"]
    assert set(ok.groupby("key").size()) == {4}
    refused = rows[rows.status == "unsupported"]
    assert refused.key.nunique() == 1
    assert len(refused) == 4, "a cell that cannot run is unsupported at every place"
    assert "needs gradients" in refused.reason.iloc[0]
    assert refused.backprop.all(), "what a method is does not depend on whether it could run"


@pytest.mark.slow
def test_ray_and_local_give_the_same_tables(finished: tuple[Path, Path], tmp_path: Path) -> None:
    path, local = finished
    outcome = tta_bench("run", path, "--engine", "ray", "--workers", "2", "--results", tmp_path / "ray")
    assert outcome.returncode == 0, outcome.stderr
    for layout in ("per-corruption", "long-term", "cost"):
        assert csv(tmp_path / "ray", layout) == csv(local, layout)


def test_a_second_run_finds_everything_done(finished: tuple[Path, Path]) -> None:
    path, results = finished
    before = csv(results)
    outcome = tta_bench("run", path, "--results", results)
    assert outcome.returncode == 0
    assert "nothing left to run" in outcome.stderr
    assert csv(results) == before


def test_a_narrowed_run_leaves_the_other_rows_in_the_table(finished: tuple[Path, Path]) -> None:
    path, results = finished
    before = csv(results)
    outcome = tta_bench("run", path, "--results", results, "--only", "method=source")
    assert "nothing left to run; 2 done" in outcome.stderr
    assert csv(results) == before


def test_source_is_the_same_in_every_round_and_says_so(finished: tuple[Path, Path]) -> None:
    rows = frame.load(ResultStore(finished[1], "small"))
    source = rows[(rows.method == "source") & (rows.status == "ok")]
    assert (source.groupby(["key", "corruption"]).accuracy.nunique() == 1).all()
    assert (source[source["round"] == 2].repeats == 1).all()
    tent = rows[(rows.method == "TENT") & (rows.status == "ok")]
    assert tent.repeats.isna().all()


def test_passes_are_counted_as_they_happen(finished: tuple[Path, Path]) -> None:
    rows = frame.load(ResultStore(finished[1], "small"))
    ok = rows[rows.status == "ok"].groupby("method")[["forwards", "backwards"]].mean()
    assert tuple(ok.loc["source"]) == (1, 0)
    assert tuple(ok.loc["TENT"]) == (1, 1)


def test_an_interrupted_cell_is_run_again_and_nothing_else(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    path, results = finished
    copy = tmp_path / "copy"
    shutil.copytree(results, copy)
    store = ResultStore(copy, "small")
    cell = next(c for c in grid.expand(config.load(path)) if c.labels.method == "TENT")
    file = store.records_folder / f"{cell.key}.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))
    outcome = tta_bench("run", path, "--results", copy)
    assert "1 cells to run, 5 done already" in outcome.stderr
    assert csv(copy) == csv(results)


def test_table_formats_agree_and_status_tells(finished: tuple[Path, Path]) -> None:
    _, results = finished
    for format in ("text", "latex", "markdown", "csv", "json", "html"):
        outcome = tta_bench("table", "--results", results, "--format", format)
        assert outcome.returncode == 0, outcome.stderr
        assert "source" in outcome.stdout
    states = json.loads(tta_bench("status", "--results", results, "--json").stdout)
    assert states["states"] == {"done": 5, "unsupported": 1}


class Breaks(Method):
    """Fails at its second domain."""

    def __init__(self) -> None:
        self.calls = 0

    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls > 3:
            raise RuntimeError("out of luck")
        return self.model(x)

    def reset(self) -> None:
        pass


def test_a_broken_plugin_breaks_only_its_own_cells(
    write_yaml: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = grid.expand(config.load(write_yaml(quantizers=["fp32"])))
    real = registry.load
    monkeypatch.setattr(registry, "load", lambda g, n: (lambda **_: Breaks()) if n == "tent" else real(g, n))
    runner = run.make_runner("local", "auto", RunPolicy())
    summary = run.run("small", cells, runner, tmp_path, "missing", RunProgress(quiet=True))
    assert summary.states == {"done": 2, "failed": 1}
    failed = [r for c in cells for r in ResultStore(tmp_path, "small").read(c.key) if r.get("reason")]
    assert "out of luck" in failed[0]["reason"]
    monkeypatch.undo()
    summary = run.run("small", cells, runner, tmp_path, "failed", RunProgress(quiet=True))
    assert summary.states == {"done": 3}
    assert summary.ran == 1


def test_sharing_features_does_not_change_a_number(write_yaml: Write) -> None:
    methods = ["source", "lame", "t3a", "shift", "bn-adapt"]
    cells = grid.expand(config.load(write_yaml(methods=methods, quantizers=["fp32"])))

    def numbers(groups: list[list[grid.Cell]]) -> dict[Any, Any]:
        executor = Executor()
        records = [
            r
            for group in groups
            for delivery in executor.run([resolve(cell) for cell in group])
            for r in delivery.records
        ]
        for record in records:
            del record["seconds"]
        return {(r["key"], r["round"], r["corruption"]): r for r in records}

    assert numbers([cells]) == numbers([[cell] for cell in cells])


def test_preparing_images_makes_exactly_what_is_read(write_yaml: Write) -> None:
    cell = grid.expand(config.load(write_yaml()))[0]
    executor = Executor()
    executor.prepare(cell, Domain("fog", 5))
    data = executor.models.data(cell.data)
    assert data.test_images(Domain("fog", 5), np.arange(40)).shape[0] == 40
