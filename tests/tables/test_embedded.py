"""The results that ship: they are of the present default benchmark, and this machine gets the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import tta_bench
from tests.helpers.command import tta_bench as command
from tta_bench.commands.inputs import grid_of
from tta_bench.errors import UserError
from tta_bench.tables.build import build
from tta_bench.tables.embedded import FILE, STEADY_POINTS, compare, wide

BENCHMARK = Path(__file__).parents[2] / "benchmark.yaml"
STEADY = {"model": "resnet-micro", "bits": "W8A8", "method": "source"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete cell of the default benchmark, computed here."""
    folder = tmp_path_factory.mktemp("results")
    only = [f"{name}={value}" for name, value in STEADY.items()]
    tta_bench.run(BENCHMARK, results=folder, engine="local", only=only, quiet=True)
    return folder


@pytest.fixture(scope="module")
def frame(results: Path) -> pd.DataFrame:
    return tta_bench.load_results(results)


def test_the_reference_has_the_cells_of_the_default_benchmark() -> None:
    keys = {cell.key for cell in grid_of(BENCHMARK).cells}
    assert set(pd.read_csv(FILE)["key"]) == keys, "run tools/embedded_reference.py"


def test_this_machine_gets_the_result_that_ships(results: Path, frame: pd.DataFrame) -> None:
    found = compare(frame)
    done = [cell for cell in found if cell.verdict != "not run"]
    assert [(cell.model, cell.bits, cell.method) for cell in done] == [tuple(STEADY.values())]
    assert done[0].verdict in ("equal", "within")
    shown = command("compare", "--results", results, "--reference", "embedded")
    assert shown.returncode == 0
    assert f"{len(found) - 1} not run" in shown.stdout


def test_a_table_shows_the_shipped_numbers_below_ours(frame: pd.DataFrame) -> None:
    done = frame[frame["status"] == "ok"]
    table = build(done, "long-term", reference="embedded")
    ours, shipped = table.groups[0].rows
    assert shipped.label == "source, published"
    pairs = [
        (own.value, theirs.value)
        for column, own, theirs in zip(table.columns, ours.entries, shipped.entries, strict=True)
        if column.kind == "accuracy"
    ]
    assert len(pairs) > 4
    assert all(abs((own or 0) - (theirs or 0)) <= STEADY_POINTS for own, theirs in pairs)
    assert "embedded in this package" in table.notes[-1]


def test_a_difference_above_the_tolerance_is_off(frame: pd.DataFrame, tmp_path: Path) -> None:
    assert _verdict(frame, tmp_path, 0) == "equal"
    images = frame["n"].max() * frame["corruption"].nunique()
    allowed = int(images * STEADY_POINTS / 100)
    assert _verdict(frame, tmp_path, allowed) == "within"
    assert _verdict(frame, tmp_path, allowed + 1) == "off"


def _verdict(frame: pd.DataFrame, folder: Path, more: int) -> str:
    """The verdict if the reference has more correct predictions in its first domain."""
    file, table = folder / "reference.csv", wide(frame)
    table.loc[0, "correct"] = str(int(table.loc[0, "correct"]) + more)
    table.to_csv(file, index=False)
    (found,) = compare(frame, file)
    return found.verdict


def test_results_of_another_benchmark_are_refused(frame: pd.DataFrame, tmp_path: Path) -> None:
    file = tmp_path / "reference.csv"
    wide(frame).assign(key="another-0123456789ab").to_csv(file, index=False)
    with pytest.raises(UserError, match="no finished cell"):
        compare(frame, file)


def test_the_table_in_the_readme_is_of_the_reference() -> None:
    reference = pd.read_csv(FILE, dtype={"correct": str})
    shown = list(_rows_of_the_readme())
    quantised = reference[reference["bits"] == "W8A8"]
    assert {(model, method) for model, method, _ in shown} == set(
        quantised[["model", "method"]].itertuples(index=False, name=None)
    )
    for model, method, numbers in shown:
        cell = quantised[(quantised["model"] == model) & (quantised["method"] == method)]
        counts = [[int(word) for word in text.split()] for text in cell["correct"]]
        rounds = [sum(row[i % len(row)] for row in counts) for i in range(10)]
        accuracy = [100 * correct / cell["n"].sum() for correct in rounds]
        wanted = [*(accuracy[i] for i in (0, 1, 4, 9)), sum(accuracy) / 10]
        assert numbers == [f"{value:.1f}" for value in wanted], (model, method)


def _rows_of_the_readme() -> Iterator[tuple[str, str, list[str]]]:
    """Model, method and numbers of each row of the first table of results."""
    model = ""
    for line in (BENCHMARK.parent / "README.md").read_text(encoding="utf-8").splitlines():
        fields = [field.strip().strip("*") for field in line.strip("|").split("|")]
        if len(fields) == 9 and fields[2].isdigit():
            model = fields[0].partition(" ")[0] or model
            yield model, fields[1], fields[3:8]
