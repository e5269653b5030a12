"""Cells on any scenario: split by domain and visit, the same however they are run."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.command import tta_bench
from tests.helpers.scenarios import COMBINED, NAMES, STREAM, small
from tta_bench import config, grid
from tta_bench.api import Domain
from tta_bench.execution.executor import Executor
from tta_bench.execution.messages import Delivery, Start
from tta_bench.execution.recorder import start_of
from tta_bench.grid import Cell, cell_of, row_of
from tta_bench.planning.sharing import resolve
from tta_bench.planning.tasks import split, tasks
from tta_bench.plugins import registry
from tta_bench.report import gather
from tta_bench.storage.format import MANIFEST_FORMAT
from tta_bench.storage.record import Record, as_json
from tta_bench.storage.store import ResultStore
from tta_bench.tables.frame import load_results

Write = Callable[..., Path]
METHODS = ["source", "t3a", {"use": "tent", "name": "TENT"}]
SCENARIOS = (*registry.names("streams"), *NAMES)

pytestmark = pytest.mark.usefixtures("no_bytes", "outside")


@pytest.fixture
def cells_on(write_yaml: Write) -> Callable[..., list[Cell]]:
    """The cells of a small benchmark on a scenario, or on any other stream."""

    def cells(methods: Sequence[Any] = METHODS, **stream: Any) -> list[Cell]:
        if isinstance(name := stream.get("scenario"), str):
            stream["scenario"] = small(name)
        file = write_yaml(methods=list(methods), quantizers=["fp32"], stream=STREAM | stream)
        return grid.expand(config.load(file))

    return cells


On = Callable[..., list[Cell]]


def records_of(deliveries: Iterable[Delivery]) -> list[Record]:
    return [record for delivery in deliveries for record in delivery.records]


def run(cells: Sequence[Cell], share: bool = True) -> list[Record]:
    found = []
    for task in tasks(cells, share):
        found += records_of(Executor().run(task.cells, [Start(described=True)] * len(task.cells)))
    return found


def stopped_and_continued(cell: Cell, calls: int) -> list[Record]:
    """The records of a cell that is stopped at the call of this number, and continued from its checkpoint."""
    resolved, asked = resolve(cell), iter(range(1000))
    first = list(Executor().run([resolved], [Start(described=True)], lambda: next(asked) >= calls))
    saved = [delivery.checkpoint for delivery in first if delivery.checkpoint is not None]
    start, kept = start_of(resolved, records_of(first), saved[-1])
    assert start.checkpoint is not None
    return [*kept, *records_of(Executor().run([resolved], [start]))]


def plain(records: Iterable[Record]) -> dict[Any, Record]:
    """Records by cell, round, domain and visit, without times."""
    found: dict[Any, Record] = {}
    for record in records:
        assert record["status"] == "ok", record.get("reason")
        where = ("key", "round", "corruption", "severity", "visit")
        place = tuple(record.get(name) for name in where)
        assert place not in found, "every record once"
        found[place] = {k: v for k, v in record.items() if k not in ("seconds", "repeats")}
    return found


def totals(records: Iterable[Record], *names: str) -> dict[Any, list[int]]:
    """Sums over the visits of every round, corruption and severity."""
    found: dict[Any, list[int]] = defaultdict(lambda: [0] * len(names))
    for record in records:
        where = (record["round"], record["corruption"], record["severity"])
        found[where] = [a + record[name] for a, name in zip(found[where], names, strict=True)]
    return dict(found)


# -- records ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_visit_has_a_record_in_every_round(scenario: str, cells_on: On) -> None:
    cells = cells_on(scenario=scenario)
    records = run(cells)
    for cell in cells:
        own = [record for record in records if record["key"] == cell.key]
        assert len(plain(own)) == len(own) == cell.records_expected
        store_places = {(r["corruption"], r["severity"], r.get("visit", 1)) for r in own if r["round"] == 2}
        assert store_places == set(cell.visits[-1])
        for record in own:
            assert sum(record["correct_per_batch"]) == record["correct"]
            sizes = record.get("images_per_batch")
            assert sizes is None or sum(sizes) == record["images"]
            assert record.get("uses_labels", False) is cell.schedule.scenario.uses_labels


@pytest.mark.parametrize("batch_size", [8, 5, 1])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_source_predicts_every_image_alike_in_any_order(scenario: str, batch_size: int, cells_on: On) -> None:
    (cell,) = cells_on(["source"], scenario=scenario, batch_size=batch_size)
    (steady,) = cells_on(["source"])
    if cell.schedule.scenario.resamples or set(cell.visited) != set(steady.visited):
        pytest.skip("it shows other images")
    visits = {place[:2]: place[2] for place in sorted(cell.visits[0])}  # the last visit of each domain
    counts = ("images", "correct", "top5_correct")
    found, expected = (totals(run([each]), *counts) for each in (cell, steady))
    for place, once in expected.items():
        assert found[place] == [visits[place[1:]] * count for count in once]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_prediction_of_source_is_that_of_its_image(scenario: str, cells_on: On) -> None:
    """Of all scenarios, those that draw images too: batches of one tell the answer to every image."""
    (cell,) = cells_on(["source"], scenario=scenario, batch_size=1, rounds=1)
    data, model = cell.data.make(), cell.model.make().build()
    labels = data.test_labels()
    stream, images = cell.stream(labels), np.arange(cell.limit or 0)
    truth: dict[Domain, np.ndarray] = {}
    for domain in cell.visited:
        with torch.no_grad():
            predicted = model.forward(data.test_images(domain, images)).argmax(1).numpy()
        truth[domain] = predicted == labels[images]
    expected: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for index, segment in enumerate(cell.schedule.segments(1)):
        for number, image in stream.pairs(1, index):
            visit = segment.visits[number]
            expected[visit.place].append(int(truth[visit.domain][image]))
    found = {}
    for record in run([cell]):
        place = (record["corruption"], record["severity"], record.get("visit", 1))
        sizes = record.get("images_per_batch", [1] * record["images"])  # 0: the batch is of another visit
        found[place] = [*itertools.compress(record["correct_per_batch"], sizes)]
    assert found == expected


def test_batches_of_several_domains_are_scored_by_domain(cells_on: On) -> None:
    (cell,) = cells_on(["tent"], scenario={"use": "interleaved", "run": 6}, rounds=1)
    noise, contrast = run([cell])
    assert noise["images_per_batch"] == [6, 4, 2, 6, 2], "runs of six, in batches of eight"
    assert contrast["images_per_batch"] == [2, 4, 6, 2, 6]
    assert noise["forward_images"] == noise["backward_images"] == contrast["forward_images"] == 20
    assert noise["fingerprint"] == contrast["fingerprint"]


def test_a_round_that_comes_twice_to_a_domain_numbers_its_visits(cells_on: On) -> None:
    (cell,) = cells_on(["tent"], scenario="there-and-back", rounds=1)
    found = [(record["corruption"], record.get("visit")) for record in run([cell])]
    assert found == [("gaussian_noise", 1), ("contrast", None), ("gaussian_noise", 2)]


# -- however they are run ---------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_sharing_changes_no_number(scenario: str, cells_on: On) -> None:
    cells = cells_on(["source", "t3a", "lame"], scenario=scenario)
    assert plain(run(cells)) == plain(run(cells, share=False))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_parts_of_a_cell_together_are_the_whole(scenario: str, cells_on: On) -> None:
    cells = cells_on([{"use": "tent", "reset": "domain"}], scenario=scenario)
    parts = [part for task in tasks(cells) for part in split([task], 2)]
    found = [
        record
        for part in parts
        for record in records_of(
            Executor().run(part.cells, [start_of(each, [], None, part.segments)[0] for each in part.cells])
        )
    ]
    assert plain(found) == plain(run(cells))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_stopped_cell_continues_where_it_was(scenario: str, cells_on: On) -> None:
    (cell,) = cells_on(["tent"], scenario=scenario)
    assert plain(stopped_and_continued(cell, 4)) == plain(run([cell]))


@pytest.mark.slow
@pytest.mark.parametrize("name", COMBINED)
def test_combined_settings_give_the_same_numbers_however_they_are_run(name: str, cells_on: On) -> None:
    cells = cells_on(["source", "lame", "tent"], **COMBINED[name])
    expected = plain(run(cells, share=False))
    assert plain(run(cells)) == expected
    parts = [part for task in tasks(cells) for part in split([task], 2)]
    starts = [[start_of(each, [], None, part.segments)[0] for each in part.cells] for part in parts]
    pieces = [Executor().run(part.cells, start) for part, start in zip(parts, starts, strict=True)]
    assert plain(record for piece in pieces for record in records_of(piece)) == expected
    tent = {place: each for place, each in expected.items() if place[0] == cells[-1].key}
    assert plain(stopped_and_continued(cells[-1], 9)) == tent


@pytest.mark.parametrize("stopped_after", [3, 7, 12, 26, 45])
def test_a_window_and_resets_continue_where_they_were(stopped_after: int, cells_on: On) -> None:
    """Windows of 4 images, resets before every 7th: a stop at any image changes neither."""
    (cell,) = cells_on(["tent"], batch_size=1, window=4, reset={"every": 7}, limit=15)
    assert plain(stopped_and_continued(cell, stopped_after)) == plain(run([cell]))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_manifest_describes_the_cell(scenario: str, cells_on: On) -> None:
    for cell in cells_on(scenario=scenario, order="reshuffled"):
        rows = [row_of(cell)]
        manifest = MANIFEST_FORMAT.validate_json(as_json({"format": 3, "version": "1", "cells": rows}))
        again = cell_of(manifest["cells"][0])
        assert (again, again.key, again.visits) == (cell, cell.with_key().key, cell.visits)


def test_status_verify_and_merge_know_visits(write_yaml: Write, tmp_path: Path) -> None:
    stream = STREAM | {"scenario": ["there-and-back", "interleaved", "by-label"]}
    file = write_yaml(methods=["source", "tent"], quantizers=["fp32"], stream=stream)
    results = str(tmp_path / "results")
    assert tta_bench("run", str(file), "--results", results).returncode == 0
    assert "6 done" in tta_bench("status", "--results", results).stdout
    verified = tta_bench("verify", "--cells", "6", "--results", results)
    assert verified.returncode == 0, verified.stderr
    assert "all are equal" in verified.stdout
    merged = tta_bench("merge", results, "--into", str(tmp_path / "all"))
    assert merged.returncode == 0, merged.stderr
    store = ResultStore(tmp_path / "results", "small")
    for row in store.manifest()["cells"]:
        assert len(store.read(row["key"])) == row["records_expected"]
    assert "6 done" in tta_bench("run", str(file), "--results", results).stderr
    (part,) = gather([store])["scenarios"]
    assert [column["key"] for column in part["table"]["columns"]][1:] == stream["scenario"]


def test_a_failure_in_a_segment_of_several_domains_is_told(write_yaml: Write, tmp_path: Path) -> None:
    """Its record has a round and no domain."""
    file = write_yaml(methods=["tent"], quantizers=["fp32"], stream=STREAM | {"scenario": "no-order"})
    results = str(tmp_path / "results")
    ran = tta_bench("run", str(file), "--results", results)
    assert ran.returncode == 1
    assert "1 failed" in ran.stderr
    status = tta_bench("status", "--results", results)
    assert "small: 1 failed\n" in status.stdout
    assert "ValueError: there is no order" in status.stdout
    assert "torn or damaged" not in status.stderr
    frame = load_results(results)
    assert set(zip(frame["round"], frame["status"], strict=True)) == {(1, "failed"), (2, "pending")}
    assert len(frame) == 4
    assert frame["reason"][frame["round"] == 1].str.contains("there is no order").all()
