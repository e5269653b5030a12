"""The report page without a browser: its numbers, its warnings, and that it is safe to open."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.helpers.command import tta_bench
from tests.helpers.report_results import (
    DEMO,
    ENGINES,
    HOSTILE,
    PAPER,
    SEVERAL_STREAMS,
    SHORT,
    WEIGHTS,
    Grid,
    write,
)
from tta_bench.report import gather, page
from tta_bench.report.build import as_data, as_script
from tta_bench.tables import frame as frames
from tta_bench.tables.build import build
from tta_bench.tables.references import load
from tta_bench.tables.render import render
from tta_bench.tables.render.numbers import number as number_of
from tta_bench.tables.table import printed

Data = dict[str, Any]
PLACES = [("cost", n) for n in (1, 2, 3)] + [("per-corruption", n) for n in (1, 2, 3)] + [("long-term", None)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two benchmarks."""
    folder = tmp_path_factory.mktemp("results")
    for grid in (PAPER, DEMO):
        write(grid, folder)
    return folder


@pytest.fixture(scope="module")
def data(results: Path) -> Data:
    return gather([_store(results, grid) for grid in (DEMO, PAPER)], "zoa-mm25")


@pytest.fixture(scope="module")
def tidy(results: Path) -> pd.DataFrame:
    return frames.load(_store(results, DEMO))


def _store(results: Path, grid: Grid) -> Any:
    from tta_bench.storage.store import ResultStore

    return ResultStore(results, grid.name)


def _packed(data: Data, layout: str, number: int | None, stream: int = 0) -> Data:
    return data["streams"][stream]["tables"][layout]["all" if number is None else str(number)]


def _row(data: Data, group: str, label: str, stream: int = 0) -> Data:
    rows = data["streams"][stream]["rows"]
    return next(row for row in rows if (row["group"], row["label"]) == (group, label))


def _kinds(row: Data) -> list[str]:
    return [flag["kind"] for flag in row["flags"]]


# Scenarios --------------------------------------------------------------------------------------


def test_scenarios_are_those_of_the_layout(tmp_path: Path) -> None:
    stores = [write(grid, tmp_path) for grid in (SEVERAL_STREAMS, DEMO)]
    found = gather(stores)
    (part,) = found["scenarios"]
    table = build(frames.load(stores[0]), "scenarios")
    assert part["benchmark"] == SEVERAL_STREAMS.name
    assert [column["key"] for column in part["table"]["columns"] if column["kind"] == "accuracy"] == [
        "mixed",
        "continual",
    ]
    for line, (group, row) in zip(part["table"]["rows"], table.rows, strict=True):
        assert [each.get("text") for each in line["entries"]] == [
            printed(each.value, "accuracy") for each in row.entries
        ]
        facts = part["rows"][line["row"]]
        assert (facts["group"], facts["label"], facts["model"]) == (group.label, row.label, group.model)
        source = part["rows"][facts["source"]]
        assert (source["label"], source["group"]) == ("source", group.label)
    names = [stream["name"] for stream in found["streams"]]
    assert [name.split(", ")[:2] for name in names[:2]] == [
        ["cifar10-mini", "mixed"],
        ["cifar10-mini", "3 domains"],
    ], "each scenario is a stream of its own in the other sections"


def test_one_stream_has_no_scenarios(data: Data) -> None:
    assert data["scenarios"] == []


# Engines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2])
def test_engines_are_those_of_the_layout(tmp_path: Path, number: int) -> None:
    store = write(ENGINES, tmp_path)
    found, table = gather([store]), build(frames.load(store), "engines", round=number)
    given = _packed(found, "engines", number)
    assert [column["key"] for column in given["columns"]] == [
        "accuracy", "agreement", "memory_mib", "packed_mib", "resident_mib", "ms_per_image",
    ]  # fmt: skip
    rows = found["streams"][0]["rows"]
    for line, (group, row) in zip(given["rows"], table.rows, strict=True):
        shown = [each.get("text") for each in line["entries"]]
        assert shown == [
            None if each.value is None else number_of(each, column)[0]
            for each, column in zip(row.entries, table.columns, strict=True)
        ]
        facts = rows[line["row"]]
        assert (facts["label"], facts["model"], facts["group"]) == (row.label, group.model, group.label)
        engine = group.quantizer.partition(" ")[2]
        assert shown[1] == ("96.9" if engine else None)
        assert shown[4] == ("250" if engine else None)
    assert {row["quantization"] for row in rows} == {"q0 W8A8", "q1 torch-int8 W8A8", "q2 onnxruntime W8A8"}


def test_streams_without_engines_have_no_such_table(data: Data) -> None:
    assert not any("engines" in part["tables"] for part in data["streams"])


# Numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "number"), PLACES)
def test_page_json_csv_and_latex_agree_for_every_cell(
    data: Data, tidy: pd.DataFrame, layout: str, number: int | None
) -> None:
    table = build(tidy, layout, round=number)
    found = _packed(data, layout, number)
    stated = json.loads(render(table, "json"))
    records = list(csv.reader(io.StringIO(render(table, "csv"))))
    assert found["csv"] == records
    rows = [row for group in stated["groups"] for row in group["rows"]]
    assert [row["label"] for row in found["rows"]] == [row["label"] for row in rows]
    lines = found["latex"]["rows"]
    for shown, row, record, line in zip(found["rows"], rows, records[1:], lines, strict=True):
        fields = dict(zip(records[0], record, strict=True))
        cells = line.removesuffix(r" \\").split(" & ")[1:]
        for column, entry, cell in zip(found["columns"], shown["entries"], cells, strict=True):
            value = row["entries"][column["key"]]["value"]
            assert entry.get("value") == value
            _agree(column["kind"], value, entry, fields[column["key"]], cell)


def _agree(kind: Any, value: float | bool | None, entry: Data, field: str, cell: str) -> None:
    """One number in four forms."""
    if value is None:
        assert "text" not in entry
        assert field == ""
        assert cell.startswith("--")
    elif kind == "rank":
        assert entry["text"] == field == cell
    elif isinstance(value, bool):
        assert (entry["text"], field) == ("✓" if value else "✗", str(value).lower())
    else:
        assert float(field) == value
        assert entry["text"] == printed(value, kind)
        assert re.sub(r"\\textbf\{(.*?)\}.*|\\,.*|\\text.*", r"\1", cell) == entry["text"]


@pytest.mark.parametrize(("layout", "number"), PLACES)
def test_pieces_of_latex_make_the_table(
    data: Data, tidy: pd.DataFrame, layout: str, number: int | None
) -> None:
    latex = _packed(data, layout, number)["latex"]
    labels: list[str] = latex["labels"]
    body = []
    for index, (label, row) in enumerate(zip(labels, latex["rows"], strict=True)):
        first = index == 0 or labels[index - 1] != label
        body += [r"\midrule", f"\\multirow{{{labels.count(label)}}}{{*}}{label} {row}"] if first else [row]
    foot = [*latex["begin_notes"], *latex["footnotes"], *latex["notes"], *latex["end_notes"]]
    assert [*latex["head"], *body, *latex["end_tabular"], *foot, *latex["end_table"]] == render(
        build(tidy, layout, round=number), "latex"
    ).splitlines()


def test_latex_without_notes_has_nothing_to_cut(tidy: pd.DataFrame) -> None:
    from tta_bench.report.tables import key_of, packed

    table = build(tidy[tidy.method == "source"], "long-term")
    bare = replace(table, notes=(), footnotes=())
    places = {key_of(group, row): 0 for group in bare.groups for row in group.rows}
    latex = packed(bare, places)["latex"]
    assert [latex[name] for name in ("begin_notes", "footnotes", "notes", "end_notes")] == [[], [], [], []]
    assert latex["end_table"][0].startswith(r"\end{table")


def test_intervals_over_seeds_are_there_for_bands(data: Data, tidy: pd.DataFrame) -> None:
    table = build(tidy, "long-term")
    entry = _packed(data, "long-term", None)["rows"][0]["entries"][1]
    expected = table.groups[0].rows[0].entries[1]
    assert expected.interval is not None
    assert entry["interval"] == pytest.approx(expected.interval, abs=1e-4)
    assert entry["spread"] == printed(expected.interval, "accuracy")


def test_the_ties_of_a_row_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the page grows in proportion to its rows, even if most of them are tied."""
    methods = tuple(replace(DEMO.methods[0], name=f"source {number}") for number in range(20))
    store = write(replace(DEMO, methods=methods, ends={}), tmp_path)
    complete = gather([store])["streams"][0]["ties"]["1"]
    assert max(map(len, complete.values())) > 4 * 3
    monkeypatch.setattr("tta_bench.tables.ties.NEAREST", 3)
    bounded = gather([store])["streams"][0]["ties"]["1"]
    assert 0 < max(map(len, bounded.values())) <= 4 * 3
    assert all(set(others) <= set(complete[row]) for row, others in bounded.items())


# Inside the stream ------------------------------------------------------------------------------


def test_a_curve_ends_at_the_accuracy_of_its_domain(data: Data, tidy: pd.DataFrame) -> None:
    online = data["streams"][0]["online"]["2"]
    assert online["domains"] == ["Gauss.", "Fog", "JPEG"]
    curve = next(c for c in online["curves"] if c["row"] == 0)
    ends = dict(zip(online["grids"][curve["grid"]], curve["accuracy"], strict=True))
    own = tidy.query("method == 'source' and model == 'vit-micro' and bits == 'FP32'")
    means = own[own["round"] == 2].groupby("domain_order").accuracy.mean()
    assert [ends[i + 1.0] for i in range(3)] == pytest.approx(list(means), abs=0.01)


def test_only_what_all_seeds_have_finished_is_drawn(data: Data) -> None:
    row = data["streams"][0]["rows"].index(_row(data, "vit-micro FP32", HOSTILE))
    online = data["streams"][0]["online"]
    grids = {
        number: [part["grids"][c["grid"]][-1] for c in part["curves"] if c["row"] == row]
        for number, part in online.items()
    }
    assert grids == {"1": [3.0], "2": [1.0], "3": []}


def test_long_domains_are_thinned(tmp_path: Path) -> None:
    from tta_bench.report.online import MOST_POINTS

    grid = replace(DEMO, images=4000, seeds=(1,), rounds=1, methods=DEMO.methods[:1], ends={})
    found = gather([write(grid, tmp_path)])["streams"][0]["online"]["1"]
    assert len(found["grids"][0]) <= MOST_POINTS * len(SHORT)
    assert {1.0, 2.0, 3.0} <= set(found["grids"][0])


# Flags ------------------------------------------------------------------------------------------


def test_forgetting_and_collapse_are_flagged(data: Data) -> None:
    cotta = _row(data, "vit-micro FP32", "CoTTA")
    texts = {flag["kind"]: flag["text"] for flag in cotta["flags"]}
    assert texts.keys() == {"forgets", "collapses", "not finite"}
    assert texts["forgets"].endswith("points lower in round 3 than in round 1")
    beginning = "accuracy below 50% of that of the unadapted model in 3 of 9 domains"
    assert texts["collapses"].startswith(beginning)
    assert texts["not finite"].startswith("18 predictions")  # 2 in each of 3 domains and seeds
    assert _kinds(_row(data, "vit-micro FP32", "ZOA [paper]")) == []


def test_without_an_unadapted_row_collapse_is_told_from_round_one(tmp_path: Path) -> None:
    grid = replace(DEMO, methods=tuple(m for m in DEMO.methods if m.use == "cotta"), ends={})
    row = gather([write(grid, tmp_path)])["streams"][0]["rows"][0]
    assert "its own in round 1" in next(f["text"] for f in row["flags"] if f["kind"] == "collapses")


def test_rows_without_a_number_say_why(data: Data) -> None:
    found = {
        (group, label): _row(data, group, label)["flags"]
        for group, label in [
            ("vit-micro W8A8", "TENT*"),
            ("vit-micro W8A8", HOSTILE),
            ("vit-micro FP32", HOSTILE),
        ]
    }
    kinds = [flags[0]["kind"] for flags in found.values()]
    assert kinds == ["unsupported", "failed", "pending"]
    texts = [flags[0]["text"] for flags in found.values()]
    assert texts[0].startswith("unsupported: needs gradients")
    assert texts[1].startswith("seed 2: failed: ValueError")
    assert texts[2].startswith("not run yet: 5 of 27 records")


# Provenance, streams, published numbers ---------------------------------------------------------


def test_provenance_tells_where_a_number_is_from(data: Data) -> None:
    cells = _row(data, "vit-micro FP32", "ZOA [paper]")["cells"]
    assert [cell["seed"] for cell in cells] == [1, 2, 3]
    cell = cells[0]
    assert cell["weights"] == WEIGHTS
    assert cell["variant"] == "paper"
    assert cell["versions"] == {"tta-bench": "0.1.0", "torch": "2.5", "timm": "1.0"}
    assert cell["host"].startswith("host ")
    assert cell["device"].startswith("device ")
    assert cell["records"] == [9, 9]
    assert [2, "fog", "demo12fog"] in data["fingerprints"][cell["fingerprints"]]
    other = _row(data, "vit-micro FP32", "source")["cells"]
    assert [c["fingerprints"] for c in other] == [c["fingerprints"] for c in cells]


def test_streams_never_share_a_table(data: Data) -> None:
    demo, paper = data["streams"]
    assert demo["name"] == "cifar10-mini, 3 domains, severity 5, 3 rounds, 40 images each, batches of 16"
    assert paper["name"].startswith("imagenet-c, 15 domains")
    assert (len(demo["rows"]), len(paper["rows"])) == (24, 2)


def test_published_numbers_stand_beside_ours(data: Data) -> None:
    demo, paper = data["streams"]
    assert (demo["cited"], paper["cited"]) == (False, True)
    table = _packed(data, "long-term", None, stream=1)
    published = next(row for row in table["rows"] if row["published"] and row["label"].startswith("ZOA"))
    entry = published["entries"][[c["key"] for c in table["columns"]].index("round_1")]
    expected = next(
        row.value
        for row in load("zoa-mm25").rows
        if (row.model, row.bits, row.method, row.round, row.column) == ("ViT-B", "W8A8", "ZOA", 1, "average")
    )
    assert entry["value"] == expected
    assert paper["rows"][published["row"]]["label"] == "ZOA"


def test_nothing_run_yet_is_a_page_of_dashes(tmp_path: Path) -> None:
    store = write(DEMO, tmp_path)
    for path in store.records_folder.iterdir():
        path.unlink()
    part = gather([store])["streams"][0]
    assert part["rounds"] == [3]
    table = part["tables"]["per-corruption"]["3"]
    shown = [c["kind"] != "flag" for c in table["columns"]]  # a tick is known before a run
    entries = [e for row in table["rows"] for e, kept in zip(row["entries"], shown, strict=True) if kept]
    assert entries
    assert not any("value" in entry for entry in entries)
    assert {_kinds(row)[0] for row in part["rows"]} == {"pending"}


# The file ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def html(data: Data) -> str:
    return page(data | {"title": HOSTILE})


def test_page_is_whole_and_small(html: str) -> None:
    markup = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", markup)
    assert "default-src 'none'" in html
    assert "unsafe-eval" not in html
    assert len(html.encode()) < 5_000_000


def test_names_are_text_and_nothing_else(html: str, data: Data) -> None:
    assert "<img" not in html.replace(html[html.index('<script type="module">') :], "")
    assert html.count("<script") == html.count("</script>") == 3
    inside = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, flags=re.DOTALL)
    assert inside
    assert json.loads(inside[1])["streams"] == json.loads(json.dumps(data["streams"]))


def test_nothing_ends_an_element_early() -> None:
    assert "<" not in as_data({"title": HOSTILE, "list": [HOSTILE, "<!--", "]]>"]})
    assert as_script('x = "</SCRIPT><!--<script>";') == 'x = "\\x3c/SCRIPT>\\x3c!--\\x3cscript>";'
    assert as_script("a < b") == "a < b"


def test_scripts_write_no_markup() -> None:
    folder = Path(__file__).parents[2] / "tta_bench" / "report" / "page"
    text = "\n".join(path.read_text() for path in folder.glob("*.js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)


# The command ------------------------------------------------------------------------------------


def test_command_writes_the_page(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    outcome = tta_bench("report", "--results", str(results), "--name", "demo", "--output", str(out))
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.startswith(f"{out}: ")
    assert out.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--results", "nowhere"], "no results here"),
        (["--name", "dmeo"], 'no benchmark "dmeo"'),
        (["--output", "nowhere/page.html"], "nowhere/page.html: the folder nowhere does not exist"),
        (["--reference", "nobody"], 'reference "nobody": not found'),
    ],
)
def test_mistakes_are_told(results: Path, arguments: list[str], expected: str) -> None:
    given = ["--results", str(results), "--name", "paper"]
    outcome = tta_bench("report", *given, *arguments)
    assert outcome.returncode == 2, outcome.stderr
    assert expected in outcome.stderr


def test_what_a_table_refuses_the_report_refuses(tmp_path: Path) -> None:
    store = write(replace(DEMO, ends={}), tmp_path)
    manifest = json.loads((store.folder / "benchmark.json").read_text())
    manifest["cells"][0]["method"]["version"] = "2"
    (store.folder / "benchmark.json").write_text(json.dumps(manifest))
    outcome = tta_bench("report", "--results", str(tmp_path), "--output", str(tmp_path / "page.html"))
    assert outcome.returncode == 2
    assert "versions 1, 2 of source" in outcome.stderr


def test_gathering_imports_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys\nimport tta_bench.report\n"
        "heavy = {'torch', 'ray', 'timm', 'matplotlib'} & set(sys.modules)\nassert not heavy, heavy"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 0, outcome.stderr
