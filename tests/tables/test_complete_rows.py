"""Rows are complete or say so: the scope of a table is what cells are to have, not what they have so far."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.command import tta_bench
from tests.helpers.report_results import FULL, Grid, Method, write
from tests.tables.test_table import entry, reasons
from tta_bench.report import gather
from tta_bench.storage.status import describe
from tta_bench.storage.store import ResultStore
from tta_bench.tables import frame as frames
from tta_bench.tables.build import build
from tta_bench.tables.table import Table

GROUP = "vit-micro FP32"
SMALL = Grid(
    name="small",
    data="cifar10-mini",
    models=(("vit-micro", "vit-micro"),),
    methods=(Method("source", "source", 50), Method("ZOA", "zoa", 70, forwards=2)),
    domains=FULL[:3],
    bits=("FP32",),
    seeds=(1,),
    rounds=1,
    images=512,
    batch=64,
)


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    """Three domains are planned, and both methods have done two."""
    written = write(SMALL, tmp_path)
    for cell in written.manifest()["cells"]:
        written.keep(cell["key"], written.read(cell["key"])[:2])
    return written


def _verdicts(table: Table) -> list[str]:
    rows = [row for group in table.groups for row in group.rows]
    return [item.rank or "best" for row in rows for item in row.entries if item.rank or item.best]


def test_an_unfinished_run_has_no_mean_and_no_verdict(store: ResultStore) -> None:
    table = build(frames.load(store), "per-corruption")
    assert [column.key for column in table.columns] == [*(name for name, _ in FULL[:3]), "average"]
    average = entry(table, GROUP, "ZOA", "average")
    assert average.value is None
    assert reasons(table, average) == ["not run yet: 1 of 3 records"]
    assert entry(table, GROUP, "ZOA", FULL[2][0]).value is None
    assert entry(table, GROUP, "ZOA", FULL[0][0]).value is not None, "a finished domain is a fact"
    assert _verdicts(table) == []
    for layout in ("cost", "long-term", "pairs", "ablation"):
        assert _verdicts(build(frames.load(store), layout)) == []


def test_one_incomplete_row_is_left_out_of_the_verdicts(tmp_path: Path) -> None:
    methods = (*SMALL.methods, Method("FOA", "foa", 90))
    written = write(replace(SMALL, methods=methods, seeds=(1, 2, 3)), tmp_path)
    keys = [c["key"] for c in written.manifest()["cells"] if c["labels"]["method"] == "FOA"]
    written.keep(keys[0], written.read(keys[0])[:2])
    table = build(frames.load(written), "per-corruption")
    first = FULL[0][0]
    assert entry(table, GROUP, "FOA", first).value == pytest.approx(90, abs=5)
    assert entry(table, GROUP, "FOA", first).rank == ""
    assert entry(table, GROUP, "ZOA", first).best, "of those that are complete"


def test_the_page_names_no_winner_of_an_unfinished_run(store: ResultStore) -> None:
    [stream] = gather([store])["streams"]
    cost = stream["tables"]["cost"]["1"]
    index = [column["key"] for column in cost["columns"]].index("accuracy")
    assert [row["entries"][index].get("value") for row in cost["rows"]] == [None, None]
    assert list(stream["ties"]["1"].values()) == [None, None]
    assert [flag["kind"] for row in stream["rows"] for flag in row["flags"]] == ["pending", "pending"]


def test_the_budget_compares_across_quantised_models(tmp_path: Path) -> None:
    """FP32 and W8A8 of one method are equal here; their ranks say nothing of that, as groups differ."""
    grid = replace(SMALL, bits=("FP32", "W8A8"), domains=FULL, seeds=(1, 2, 3))
    [stream] = gather([write(grid, tmp_path)])["streams"]
    labels = [(row["group"], row["label"]) for row in stream["rows"]]
    ties = {labels[int(row)]: [labels[i] for i in others] for row, others in stream["ties"]["1"].items()}
    assert ties[GROUP, "ZOA"] == [("vit-micro W8A8", "ZOA")]
    assert ties["vit-micro W8A8", "source"] == [(GROUP, "source")]


def test_status_and_table_mean_the_same_accuracy(tmp_path: Path) -> None:
    """Clean images are not averaged with corrupted ones, and domains count alike whatever their size."""
    grid = replace(SMALL, domains=(("clean", 0), *FULL[:2]), methods=SMALL.methods[:1])
    written = write(grid, tmp_path)
    [cell] = written.manifest()["cells"]
    records = written.read(cell["key"])
    first = records[1] | {"images": 64, "correct": 60, "correct_per_batch": [60], "top5_correct": 64}
    clean = records[0] | {"correct": 500, "top5_correct": 512}
    written.keep(cell["key"], [clean, first, records[2]])
    [row] = describe(written).data["cells"]
    table = build(frames.load(written), "long-term")
    assert row["accuracy"] == f"{entry(table, GROUP, 'source', 'average').value:.1f}"
    written.keep(cell["key"], [clean, first])
    assert describe(written).data["cells"][0]["accuracy"] == "93.8 so far"


def test_captions_say_which_images_the_numbers_are_about(store: ResultStore) -> None:
    for cell in store.manifest()["cells"]:
        store.describe(cell["key"], {"data_note": "corruptions regenerated, frost without its photographs"})
    table = build(frames.load(store), "cost")
    assert table.caption.endswith(
        "cifar10-mini, 512 images per domain, batches of 64. corruptions regenerated, frost without its "
        "photographs."
    )


def test_another_protocol_does_not_hide_a_finished_run(tmp_path: Path) -> None:
    """`run -o stream.rounds=1` over two finished rounds: they are told of, and a flag away."""
    two = write(replace(SMALL, rounds=2), tmp_path)
    finished = [cell["key"] for cell in two.manifest()["cells"]]
    short = write(replace(SMALL, name="short"), tmp_path).manifest()["cells"]
    two.write_manifest([cell | {"key": f"{cell['key']}-short"} for cell in short])
    assert [cell["key"] for cell in ResultStore(tmp_path, "small").earlier()] == finished
    where = ("table", "--results", tmp_path, "--name", "small", "--layout", "long-term")
    shown = tta_bench(*where)
    assert "not run yet: 3 of 3 records" in shown.stdout
    assert "2 complete cells of earlier runs (rounds: 2) are not shown" in shown.stderr
    earlier = tta_bench(*where, "--earlier")
    assert earlier.returncode == 0, earlier.stderr
    assert "not run yet" not in earlier.stdout
