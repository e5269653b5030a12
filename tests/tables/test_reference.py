"""Published numbers: the file is sound, cells find theirs, and verdicts are what they should be."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import pytest

from tta_bench.corruptions.sets import IMAGENET_C_15
from tta_bench.errors import UserError
from tta_bench.tables.build import build
from tta_bench.tables.compare import Comparison, Tolerance, compare, summarize
from tta_bench.tables.references import load
from tta_bench.tables.references.files import FOLDER
from tta_bench.tables.references.reference import Citation, Identity, Published, Reference
from tta_bench.tables.render import FORMATS, render

ROUNDING = 0.0501  # half of the last digit


@pytest.fixture(scope="module")
def paper() -> Reference:
    return load("zoa-mm25")


def test_all_numbers_are_there(paper: Reference) -> None:
    assert len(paper.rows) == 1267
    assert len({row.table for row in paper.rows}) == 16


def test_every_disagreement_of_the_paper_with_itself_has_a_note(paper: Reference) -> None:
    """Numbers for one and the same cell that differ, and averages that are not those of their row."""
    same: dict[tuple[object, ...], list[Published]] = defaultdict(list)
    for row in paper.rows:
        wanted = row.wanted
        cell = (*wanted.data, wanted.model, wanted.bits, wanted.method, str(wanted.settings), wanted.reset)
        column = row.column if row.metric == "accuracy" else ""
        same[(*cell, row.metric, row.round, column)].append(row)
    for rows in same.values():
        if len({row.value for row in rows}) > 1:
            assert all(row.note for row in rows), rows
    lines: dict[tuple[object, ...], dict[object, Published]] = defaultdict(dict)
    for row in paper.rows:
        if row.metric == "accuracy":
            place = row.column if row.column != "average" else (row.column, row.round)
            lines[row.table, row.model, row.bits, row.method][place] = row
    for line in lines.values():
        found = [line[name].value for name in IMAGENET_C_15 if name in line]
        rounds = [line["average", number].value for number in range(1, 11) if ("average", number) in line]
        averages = [line[p] for p in line if isinstance(p, tuple) and p[1] in (10, "reset")]
        if len(found) == len(IMAGENET_C_15):
            off = abs(averages[0].value - fmean(found))
            assert off < ROUNDING or f"average {fmean(found):.2f}" in averages[0].note, averages[0]
        if len(rounds) == 10:
            total = line["average", "all"]
            assert abs(total.value - fmean(rounds)) < ROUNDING or total.note, total


def identity(**changes: Any) -> Identity:
    found = {
        "data": "imagenet-c",
        "model": "vit-b",
        "bits": "W4A4",
        "method": "source",
        "settings": {},
        "reset": "never",
    }
    return Identity(**(found | changes))


def test_a_layout_gets_the_number_of_its_own_table(paper: Reference) -> None:
    cite = Citation("accuracy", "average", 10)
    cost, other = (paper.find(identity(), cite, layout) for layout in ("cost", "per-corruption"))
    assert cost is not None
    assert other is not None
    assert (cost.value, other.value) == (47.7, 48.0)
    assert "47.7" in cost.note
    assert cost.note == other.note


ZOA = {
    "q": 1,
    "bank_size": 32,
    "bank_policy": "similar",
    "store": "on_shift",
    "alpha_init": "derived",
    "distribution": "rsu",
    "c": 0.02,
}


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"settings": ZOA}, 62.8),
        ({"settings": ZOA | {"bank_size": 0}}, 60.2),
        ({"settings": ZOA | {"distribution": "gaussian"}}, 61.6),
        ({"settings": ZOA | {"store": "every", "bank_policy": "dequeue"}}, 50.2),
        ({"settings": ZOA | {"c": 0.03}}, None),
        ({"settings": ZOA, "data": "cifar10-mini"}, None),
        ({"settings": ZOA, "reset": "domain"}, None),
        ({"settings": ZOA, "bits": "W5A5"}, None),
    ],
)
def test_cells_are_matched_by_what_they_are(
    paper: Reference, changes: dict[str, Any], value: float | None
) -> None:
    cell = identity(method="zoa", **({"bits": "W8A8"} | changes))
    found = paper.find(cell, Citation("accuracy", "average", 10))
    assert (None if found is None else found.value) == value


def copy(folder: Path, change: str, into: str) -> str:
    """The paper's files in a folder, one line of the CSV changed; its path."""
    text = (FOLDER / "zoa_mm25.csv").read_text()
    assert text.count(change) == 1
    (folder / "own.csv").write_text(text.replace(change, into))
    (folder / "own.yaml").write_text((FOLDER / "zoa_mm25.yaml").read_text())
    return str(folder / "own.csv")


FIRST = "tab:quantized_vit,ViT-B,W8A8,Source,10,gaussian_noise,accuracy,56.1\n"


@pytest.mark.parametrize(
    ("into", "problem"),
    [
        (FIRST * 2, "line 3: repeats line 2. Remove one."),
        (FIRST.replace("56.1", "high"), 'line 2: value "high" is not a number of at least 0.'),
        (FIRST.replace("Source", "Sorce"), 'line 2: unknown method "Sorce".'),
        (FIRST.replace("ViT-B", "ViT-H"), 'line 2: unknown model "ViT-H".'),
        (FIRST.replace("W8A8", "8bit"), 'line 2: bits "8bit" is not of the form'),
        (FIRST.replace(",10,", ",ten,"), 'line 2: round "ten" is not of the form'),
        (FIRST.replace("accuracy", "acc"), 'line 2: unknown metric "acc".'),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, into: str, problem: str) -> None:
    with pytest.raises(UserError, match=r"own\.csv") as caught:
        load(copy(tmp_path, FIRST, into))
    assert problem in str(caught.value)


def test_a_bad_header_and_an_unknown_reference_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 1: the header must be table,model"):
        load(copy(tmp_path, "table,model,bits", "tab,model,bits"))
    with pytest.raises(UserError, match=r'not found\. Did you mean "zoa-mm25"\? There are: .*; or give'):
        load("zoa-mm26")


def frame(rounds: int = 10, offset: float = 0.0, **changes: Any) -> pd.DataFrame:
    """ZOA on ViT-B W8A8 exactly as published, every corruption in every round `offset` points higher."""
    published = {
        row.column: row.value
        for row in load("zoa-mm25").rows
        if (row.table, row.bits, row.method) == ("tab:quantized_vit", "W8A8", "ZOA")
    }
    cell = {
        "key": "zoa", "model": "ViT-B", "quantizer": "PTQ4ViT", "method": "ZOA", "bits": "W8A8",
        "variant": "", "reset": "never", "version": "1", "seed": 1, "status": "ok", "reason": "",
        "backprop": False, "memory_mib": 204.0, "packed_mib": 80.0, "measured_mib": None,
        "model_order": 0, "quantizer_order": 0, "method_order": 0,
        "data": "imagenet-c", "model_plugin": "vit-b", "method_plugin": "zoa",
        "params": json.dumps(ZOA), "batch_size": 64, "rounds": rounds, "severity": 5, "n": 50_000,
        "forwards": 2.0, "backwards": 0.0, "skipped_updates": 0, "skipped_reasons": "{}",
        "fingerprint": None,
    }  # fmt: skip
    rows = [
        cell | {"round": number, "corruption": name, "domain_order": i, "accuracy": published[name] + offset}
        for number in range(1, rounds + 1)
        for i, name in enumerate(IMAGENET_C_15)
    ]
    return pd.DataFrame([row | changes for row in rows])


def verdicts(found: list[Comparison], table: str) -> dict[str, str]:
    """Verdicts by column."""
    return {c.published.column: c.verdict for c in found if c.published.table == table}


@pytest.mark.parametrize(("offset", "verdict"), [(0.0, "within"), (0.45, "within"), (-0.6, "off")])
def test_accuracy_is_within_so_many_points(paper: Reference, offset: float, verdict: str) -> None:
    found = compare(frame(offset=offset), paper, Tolerance())
    assert set(verdicts(found, "tab:quantized_vit").values()) == {verdict}
    first = next(c for c in found if c.published.table == "tab:quantized_vit")
    assert first.difference == pytest.approx(offset)
    wide = compare(frame(offset=offset), paper, Tolerance(points=1))
    assert set(verdicts(wide, "tab:quantized_vit").values()) == {"within"}


def test_memory_is_within_so_many_percent_and_passes_are_exact(paper: Reference) -> None:
    found = verdicts(compare(frame(), paper, Tolerance()), "tab:cost")
    assert found == {"average": "within", "memory": "within", "backprop": "within", "forwards": "within"}
    found = verdicts(compare(frame(memory_mib=200.0, forwards=2.1), paper, Tolerance()), "tab:cost")
    assert (found["memory"], found["forwards"]) == ("off", "off")


def test_what_has_not_run_is_said(paper: Reference) -> None:
    short = compare(frame(rounds=1), paper, Tolerance())
    average = next(c for c in short if c.published.round == "all" and c.published.table == "tab:long_term")
    assert (average.verdict, average.note) == ("not run", "15 of 150 domains")
    assert set(verdicts(short, "tab:quantized_vit").values()) == {"not run"}
    some = compare(frame()[lambda f: f.corruption != "fog"], paper, Tolerance())
    assert verdicts(some, "tab:quantized_vit")["fog"] == "not run"
    assert verdicts(some, "tab:quantized_vit")["average"] == "not run"
    assert verdicts(some, "tab:quantized_vit")["snow"] == "within"
    pending = frame().iloc[[0]].assign(status="pending", round=None, corruption=None)
    found = verdicts(compare(pending, paper, Tolerance()), "tab:cost")
    assert found == {"average": "not run", "memory": "within", "backprop": "not run", "forwards": "not run"}
    failed = frame().assign(status="failed", reason="ValueError: no", round=None, corruption=None)
    assert {c.note for c in compare(failed.iloc[[0]], paper, Tolerance()) if c.ours is None} == {
        "failed: ValueError: no"
    }


def test_caveats_are_told(paper: Reference) -> None:
    found = compare(frame(n=256, data="imagenet"), paper, Tolerance())
    assert {c.note for c in found if c.published.table == "tab:quantized_vit"} == {
        "256 of 50000 images per domain; corruptions regenerated, not the published files"
    }


def test_tables_can_be_chosen_and_not_run_numbers_share_a_line(paper: Reference) -> None:
    found = compare(frame(rounds=1), paper, Tolerance(), "tab:quantized_vit")
    told = summarize(found, paper, Tolerance())
    assert told.data["verdicts"] == {"within": 0, "off": 0, "not run": 16}
    assert len(told.data["cells"]) == 16
    assert told.text.count("tab:quantized_vit") == 1
    assert "16 numbers" in told.text
    with pytest.raises(UserError, match=r"no such table\. There are: tab:quantized_vit, "):
        compare(frame(rounds=1), paper, Tolerance(), "tab:costs")


@pytest.mark.parametrize(
    ("metric", "value", "half_step", "ours", "verdict"),
    [
        ("bank_mib", 0.02, 0.005, 0.016, True),
        ("bank_mib", 0.02, 0.005, 0.014, False),
        ("bank_mib", 0.7, 0.05, 0.75, True),
        ("memory_mib", 205.0, 0.05, 211.1, True),
        ("memory_mib", 205.0, 0.05, 211.2, False),
        ("forwards", 2.0, 0.5, 2.1, False),
        ("backwards", 0.0, 0.5, 0.1, False),
        ("accuracy", 54.2, 0.05, 54.7, True),
        ("accuracy", 54.2, 0.05, 54.8, False),
    ],
)
def test_tolerances_are_points_or_percent_and_memories_are_rounded(
    paper: Reference, metric: str, value: float, half_step: float, ours: float, verdict: bool
) -> None:
    row = replace(paper.rows[0], metric=metric, value=value, half_step=half_step)
    assert Tolerance().allows(row, ours) is verdict


def test_digits_are_kept(paper: Reference) -> None:
    found = {(row.method, row.value): row.half_step for row in paper.rows if row.metric == "bank_mib"}
    assert found["ZOA N=128", 1.06] == 0.005
    assert found["DKM", 0.7] == 0.05


BANK = {"store": "every", "store_every": 30, "c": 0.02}


def test_bank_numbers_come_from_schedule_and_memory(paper: Reference) -> None:
    no_bank = frame(memory_mib=203.25, params=json.dumps(ZOA | {"bank_size": 0}), key="none", method="none")
    kept = json.dumps(ZOA | BANK | {"bank_policy": "keep_all"})
    full = frame(memory_mib=204.0, params=kept, key="all", method="Save All")
    found = compare(pd.concat([no_bank, full]), paper, Tolerance(), "tab:domain_management")
    ours = {c.published.metric: (c.ours, c.verdict) for c in found}
    assert ours["domain_parameters"] == (3909, "within")
    assert ours["bank_mib"] == (pytest.approx(3909 * 0.75 / 32), "off")
    assert any("22 512 bytes" in c.note for c in found)


@pytest.mark.parametrize("format", FORMATS)
def test_published_rows_stand_below_ours_in_every_format(format: str) -> None:
    table = build(frame(), "per-corruption", reference="zoa-mm25")
    ours, published = table.groups[0].rows
    assert (published.label, published.published, ours.published) == ("ZOA, published", True, False)
    assert [e.value for e in published.entries] == pytest.approx([e.value for e in ours.entries], abs=0.05)
    assert not any(entry.best for entry in published.entries)
    text = render(table, format)
    mark = {
        "latex": r"\textit{60.2}",
        "longtable": r"\textit{60.2}",
        "markdown": "*60.2*",
        "html": "<em>60.2</em>",
        "text": "(60.2)",
        "csv": "published",
        "json": '"published": true',
    }
    assert mark[format] in text
    assert "Deng et al." in text or format == "csv"


def test_a_paper_that_has_no_such_cell_adds_a_note_only() -> None:
    table = build(frame(data="cifar10-mini"), "per-corruption", reference="zoa-mm25")
    assert len(table.groups[0].rows) == 1
    assert table.notes[-1].startswith("No row is one that Deng et al.")
