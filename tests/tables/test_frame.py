"""The public frame: what docs/frame.md says of it, categories, repeated rounds, failures, export."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import tta_bench
from tests.helpers.command import tta_bench as command
from tests.helpers.report_results import DEMO, write
from tests.tables.test_complete_rows import SMALL
from tta_bench.storage.store import ResultStore
from tta_bench.tables.build import build

DOCUMENT = Path(__file__).parents[2] / "docs" / "frame.md"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    write(DEMO, folder)
    return folder


def test_the_document_lists_every_column_with_its_dtype(results: Path) -> None:
    frame = tta_bench.load_results(results)
    documented = re.findall(r"^\| `(\w+)` \| (\w+) \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert documented == [(name, str(dtype)) for name, dtype in frame.dtypes.items()]


def test_a_frame_before_any_run_has_the_same_columns(tmp_path: Path) -> None:
    store = write(SMALL, tmp_path)
    for path in store.records_folder.iterdir():
        path.unlink()
    frame = tta_bench.load_results(tmp_path)
    assert set(frame["status"]) == {"pending"}
    documented = re.findall(r"^\| `(\w+)` \| (\w+) \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert documented == [(name, str(dtype)) for name, dtype in frame.dtypes.items()]


def test_one_row_for_each_cell_round_and_domain(results: Path) -> None:
    frame = tta_bench.load_results(results / "demo")
    cells = ResultStore(results, "demo").manifest()["cells"]
    assert len(frame) == sum(cell["records_expected"] for cell in cells)
    assert not frame.duplicated(["key", "round", "corruption", "severity"]).any()
    assert list(frame["method"].cat.categories) == [method.name for method in DEMO.methods]
    assert list(frame["corruption"].cat.categories) == [name for name, _ in DEMO.domains]


def test_numbers_are_those_of_the_records(results: Path) -> None:
    frame, store = tta_bench.load_results(results), ResultStore(results, "demo")
    found = frame[frame["status"] == "ok"].set_index(["key", "round", "corruption"])
    records = [record for cell in store.manifest()["cells"] for record in store.read(cell["key"])]
    failed = {record["key"] for record in records if record["status"] != "ok"}
    ok = [record for record in records if record["status"] == "ok" and record["key"] not in failed]
    assert len(found) == len(ok)
    for record in ok:
        row = found.loc[(record["key"], record["round"], record["corruption"])]
        assert row["accuracy"] == 100 * record["correct"] / record["images"]
        assert row["correct_per_batch"] == record["correct_per_batch"]
        assert (row["fingerprint"], row["seconds"]) == (record["fingerprint"], record["seconds"])
        assert row["host"].startswith("host ")


def test_a_failure_without_a_domain_is_the_status_of_the_whole_cell(results: Path) -> None:
    frame = tta_bench.load_results(results)
    by_cell = frame.groupby("key", observed=True)["status"].agg(set)
    assert {"failed"} in list(by_cell)
    assert all(len(found) == 1 for found in by_cell if found & {"failed", "unsupported"})
    assert (frame["reason"] != "").equals(frame["status"].isin(["failed", "unsupported"]))


def test_benchmarks_are_loaded_together_or_by_name(tmp_path: Path) -> None:
    write(SMALL, tmp_path)
    write(replace(SMALL, name="other"), tmp_path)
    assert set(tta_bench.load_results(tmp_path)["benchmark"]) == {"small", "other"}
    assert set(tta_bench.load_results(tmp_path, "other")["benchmark"]) == {"other"}
    assert set(tta_bench.load_results(tmp_path / "small")["benchmark"]) == {"small"}


def test_visits_of_a_domain_are_rows_of_the_frame_and_one_record_of_a_table(tmp_path: Path) -> None:
    store = write(replace(SMALL, methods=SMALL.methods[:1]), tmp_path)
    manifest = json.loads((store.folder / "benchmark.json").read_text())
    [cell] = manifest["cells"]
    (first, *_), visits = cell["domains"], [[*cell["domains"][0], 1], [*cell["domains"][0], 2]]
    cell |= {"visits": [visits], "records_expected": 2}
    record = store.read(cell["key"])[0]
    hits = [256, 128]
    own = [
        record | {"visit": i + 1, "correct": n, "top5_correct": 512, "correct_per_batch": [n // 8] * 8}
        for i, n in enumerate(hits)
    ]
    (store.folder / "benchmark.json").write_text(json.dumps(manifest))
    store = ResultStore(tmp_path, "small")
    store.manifest()
    store.keep(cell["key"], own)
    frame = tta_bench.load_results(tmp_path)
    assert list(frame["visit"]) == [1, 2]
    assert list(frame["correct"]) == hits
    [row] = build(frame, "per-corruption").groups[0].rows
    assert [entry.value for entry in row.entries] == [37.5, 37.5]
    assert first[0] == frame["corruption"].iloc[0]


# -- export ------------------------------------------------------------------------------------------


def test_the_frame_as_csv_and_json(results: Path, tmp_path: Path) -> None:
    frame = tta_bench.load_results(results)
    where = ("table", "--results", results, "--layout", "tidy")
    shown = command(*where)
    assert shown.returncode == 0, shown.stderr
    assert pd.read_csv(io.StringIO(shown.stdout))["accuracy"].equals(frame["accuracy"])
    written = command(*where, "--format", "json", "--output", tmp_path / "tidy.json")
    assert written.stdout.strip() == str(tmp_path / "tidy.json")
    rows = json.loads((tmp_path / "tidy.json").read_text())
    assert [row["key"] for row in rows] == list(frame["key"])
    assert rows[0]["correct_per_batch"] == frame["correct_per_batch"][0]


def test_the_frame_as_parquet(results: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    where = ("table", "--results", results, "--layout", "tidy", "--format", "parquet")
    assert command(*where, "--output", tmp_path / "a.parquet").returncode == 0
    found = pd.read_parquet(tmp_path / "a.parquet")
    frame = tta_bench.load_results(results)
    assert found.drop(columns="correct_per_batch").equals(frame.drop(columns="correct_per_batch"))
    unnamed = command(*where)
    assert unnamed.returncode == 2
    assert "Name a file with --output FILE" in unnamed.stderr


def test_parquet_without_pyarrow_says_how_to_install_it(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tta_bench.errors import UserError
    from tta_bench.tables import tidy_export

    monkeypatch.setattr(tidy_export, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install pyarrow"):
        tidy_export.export(tta_bench.load_results(results), "parquet", tmp_path / "a.parquet")
    with pytest.raises(UserError, match='unknown format "latex"'):
        tidy_export.export(tta_bench.load_results(results), "latex", None)


def test_loading_imports_neither_torch_nor_ray() -> None:
    code = (
        "import sys, tta_bench; assert 'pandas' not in sys.modules; tta_bench.load_results; "
        "print({'torch', 'ray'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
