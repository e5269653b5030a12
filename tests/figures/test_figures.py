"""Figures: the numbers behind them, that they are drawn, and that mistakes are told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.tables.test_layouts import cell
from tta_bench.errors import UserError
from tta_bench.figures import FIGURES, draw, motivation, online, pareto, rounds
from tta_bench.tables.build import build
from tta_bench.tables.online_curves import OnlineCurve, mean_curves

BATCHES = [64, 32, 0, 64, 10, 54, 0, 0, 0, 32]  # of 640 images, 256 right


@pytest.fixture
def frame() -> pd.DataFrame:
    """Two methods over three rounds of two corruptions and clean images, on two seeds."""
    cells = []
    for seed in (1, 2):
        for i, (name, accuracy, mib) in enumerate([("Source", 40.0, 100.0), ("ZOA", 50.0, 101.0)]):
            rows = cell(name, accuracy + seed, seed=seed, method_order=i, memory_mib=mib, key=f"{name}{seed}")
            clean = rows[rows.corruption == "fog"].assign(
                corruption="clean", severity=0, domain_order=2, accuracy=90.0
            )
            cells += [rows, clean]
    found = pd.concat(cells, ignore_index=True)
    return found.assign(correct_per_batch=[BATCHES] * len(found))


@pytest.mark.parametrize(
    ("name", "suffix"), [*zip(FIGURES, (".pdf", ".png", ".svg", ".pdf"), strict=True)], ids=FIGURES
)
def test_every_figure_is_drawn_the_same_every_time(
    frame: pd.DataFrame, name: str, suffix: str, tmp_path: Path
) -> None:
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    for path in (first, second):
        draw(frame, name, path)
    assert first.stat().st_size > 1000
    assert first.read_bytes() == second.read_bytes()


def test_motivation_has_a_pair_of_bars_and_an_arrow_for_every_row(frame: pd.DataFrame) -> None:
    axes = motivation.draw(frame, None).axes[0]
    heights = [bar.get_height() for bar in axes.patches]  # type: ignore[attr-defined]
    assert heights[:4] == [90.0, 43.5, 90.0, 53.5]
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["−46.5", "−36.5"]


def test_rounds_are_the_long_term_table(frame: pd.DataFrame) -> None:
    axes = rounds.draw(frame, None).axes[0]
    lines = {str(line.get_label()): list(line.get_ydata()) for line in axes.get_lines()}  # type: ignore[call-overload]
    assert lines == {"Source": [41.5, 42.5, 43.5], "ZOA": [51.5, 52.5, 53.5]}
    assert len(axes.collections) == 2, "a band for each line"


def test_online_curves_are_accuracies_so_far_and_begin_anew_in_each_domain(frame: pd.DataFrame) -> None:
    rows = frame[(frame.method == "ZOA") & (frame["round"] == 1)]
    rows.loc[rows.seed == 2, "correct_per_batch"] = pd.Series([[0] * 10] * len(frame))
    first, second, third = mean_curves(rows)
    assert first.images == [64 * i for i in range(1, 11)]
    assert second.images == [640 + 64 * i for i in range(1, 11)]
    assert first.accuracy[:4] == pytest.approx([50, 37.5, 25, 31.25]), "the mean of two seeds"
    assert first.accuracy[-1] == pytest.approx(20.0)
    assert third.accuracy == first.accuracy


def test_a_last_batch_may_be_smaller(frame: pd.DataFrame) -> None:
    rows = frame[(frame["round"] == 1) & (frame.corruption == "fog")].head(1)
    short = rows.assign(n=100, correct_per_batch=[[64, 18]])
    assert mean_curves(short) == [OnlineCurve([64, 100], [100.0, 82.0])]


def test_batches_with_images_of_several_domains_count_those_of_the_domain(frame: pd.DataFrame) -> None:
    rows = frame[(frame["round"] == 1) & (frame.corruption == "fog")].head(2)
    mixed = rows.assign(
        n=100, correct_per_batch=[[0, 16, 9], [32, 0]], images_per_batch=[[0, 64, 36], [64, 36]]
    )
    assert mean_curves(mixed) == [OnlineCurve([64, 100], [37.5, 28.5])]


def test_seeds_with_other_numbers_of_images_are_averaged_by_share_of_the_domain(frame: pd.DataFrame) -> None:
    rows = frame[(frame["round"] == 1) & (frame.corruption == "fog")].head(2)
    drawn = rows.assign(n=[128, 64], correct_per_batch=[[64, 0], [32]])
    assert mean_curves(drawn) == [OnlineCurve([64, 128], [75.0, 50.0])]


def test_online_leaves_out_what_is_still_on_its_way(frame: pd.DataFrame) -> None:
    rows = frame[frame["round"] == 1]
    under_way = rows[(rows.key != "ZOA2") | (rows.corruption == "fog")]
    assert set(online.complete(under_way).key) == {"Source1", "Source2", "ZOA1"}


def test_the_front_is_what_nothing_beats() -> None:
    def point(mib: float, accuracy: float) -> pareto.Point:
        return pareto.Point("", "", mib, accuracy)

    lean, better, worse, rich = point(1, 50), point(2, 60), point(3, 55), point(4, 61)
    assert pareto.front([rich, worse, better, lean, point(2, 40)]) == [lean, better, rich]


def test_pareto_has_a_point_for_every_complete_row(frame: pd.DataFrame) -> None:
    found = pareto.points(build(frame, "cost"))
    assert [(point.label, point.mib, point.accuracy) for point in found] == [
        ("Source", 100.0, 43.5),
        ("ZOA", 101.0, 53.5),
    ]


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_to_draw_is_an_error(frame: pd.DataFrame, name: str, tmp_path: Path) -> None:
    awaited = frame.drop_duplicates("key").assign(status="pending", round=None, corruption=None)
    with pytest.raises(UserError, match=f"figure {name}|table (gap|per-corruption)"):
        draw(awaited, name, tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        ("round", "a.pdf", 'Did you mean "rounds"?'),
        ("rounds", "a.gif", "unknown format"),
        ("rounds", "nowhere/a.pdf", "does not exist"),
    ],
)
def test_mistakes_are_told(frame: pd.DataFrame, name: str, path: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        draw(frame, name, tmp_path / path)
    assert message in str(caught.value)


def test_the_command_line_does_not_wait_for_matplotlib() -> None:
    code = (
        "import sys, tta_bench.cli, tta_bench.figures, tta_bench.tables.render; "
        "print({'matplotlib', 'torch', 'scipy'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
