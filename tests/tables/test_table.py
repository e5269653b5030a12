"""Tables: what they hold, what they leave out with a reason, and what they refuse to mix."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tta_bench.plugins import registry
from tta_bench.tables.build import build
from tta_bench.tables.table import Row, Table, TableEntry, TableError

LAYOUTS = registry.names("layouts")
GOLDEN = Path(__file__).parents[1] / "golden"
LAST = 2  # the last round of the frame
FROM_THE_FIRST_ROUND = {"long-term", "ablation", "bank", "reset-vs-continual"}  # the others show the last


@pytest.fixture
def frame() -> pd.DataFrame:
    """Two models, two seeds, two rounds; TENT* is unsupported, FOA failed, ZOA is not finished."""
    return pd.read_csv(GOLDEN / "frame.csv")


def find(table: Table, group: str, label: str) -> Row:
    """A row by its labels."""
    return next(row for g in table.groups if g.label == group for row in g.rows if row.label == label)


def entry(table: Table, group: str, label: str, column: str) -> TableEntry:
    """An entry by its labels and the key of its column."""
    keys = [c.key for c in table.columns]
    return find(table, group, label).entries[keys.index(column)]


def results(table: Table, row: Row) -> list[TableEntry]:
    """The entries of a row that records must fill; a tick is known of a method before it has run."""
    return [e for e, c in zip(row.entries, table.columns, strict=True) if c.kind != "flag"]


def reasons(table: Table, item: TableEntry | Row) -> list[str]:
    """The footnotes of an entry or row."""
    return [table.footnotes[mark - 1] for mark in item.marks]


def test_mean_and_spread_over_seeds(frame: pd.DataFrame) -> None:
    found = entry(build(frame, "per-corruption"), "vit-micro FP32", "Source", "fog")
    rows = frame.query("bits == 'FP32' and method == 'Source' and corruption == 'fog'")
    values = rows[rows["round"] == LAST].accuracy
    assert found.value == pytest.approx(values.mean())
    assert found.std == pytest.approx(values.std(ddof=1))
    assert found.seeds == 2


def test_average_is_over_corruptions_and_leaves_out_clean(frame: pd.DataFrame) -> None:
    table = build(frame, "per-corruption", round=1)
    rows = frame.query("bits == 'FP32' and method == 'Source' and corruption != 'clean'")
    expected = rows[rows["round"] == 1].accuracy.mean()
    found = entry(table, "vit-micro FP32", "Source", "average")
    assert found.value == pytest.approx(expected)
    assert "Averages leave out the clean images." in table.notes


def test_only_clean_images_have_an_average(frame: pd.DataFrame) -> None:
    table = build(frame[frame.corruption == "clean"], "per-corruption")
    assert entry(table, "vit-micro FP32", "Source", "average").value is not None


def test_columns_are_grouped_then_in_the_order_of_the_yaml(frame: pd.DataFrame) -> None:
    table = build(frame, "per-corruption")
    assert [(c.group, c.name) for c in table.columns] == [
        ("", "BP"),  # as TENT* propagates backwards
        ("Noise", "Gauss."),
        ("Weather", "Fog"),
        ("Other", "a_b"),
        ("Other", "clean"),
        ("Average", "Acc."),
    ]


def test_single_seed_has_no_spread(frame: pd.DataFrame) -> None:
    table = build(frame[frame.seed == 0], "long-term")
    found = entry(table, "vit-micro W8A8", "ZOA [paper]", "average")
    assert found.value is not None
    assert found.std is None
    assert found.seeds == 1


def test_unsupported_is_a_dash_with_its_reason(frame: pd.DataFrame) -> None:
    table = build(frame, "per-corruption")
    row = find(table, "vit-micro W8A8", "TENT*")
    assert all(item.value is None for item in results(table, row))
    reason = "unsupported: PTQ4ViT_int8 has no gradient | 100% of its rounding"
    assert reasons(table, results(table, row)[0]) == [reason]


@pytest.mark.parametrize("layout", ["per-corruption", "long-term"])
def test_failed_is_a_dash_even_where_its_records_are_ok(frame: pd.DataFrame, layout: str) -> None:
    table = build(frame, layout)
    row = find(table, "resnet_50% W8A8", "FOA")
    assert all(item.value is None for item in results(table, row))
    reason = "seed 1: failed: ValueError: covariance <C> is not finite"
    average = [column.key for column in table.columns].index("average")
    assert reasons(table, row.entries[average]) == [reason]


def test_unfinished_shows_what_is_complete_over_all_seeds(frame: pd.DataFrame) -> None:
    table = build(frame, "per-corruption")
    place = ("resnet_50% W8A8", "ZOA")
    assert entry(table, *place, "fog").seeds == 2
    average = entry(table, *place, "average")
    assert average.value is None
    assert reasons(table, average) == ["not run yet: 2 of 8 records"]


@pytest.mark.parametrize("status", ["absent", "pending"])
def test_a_missing_cell_is_not_run_yet(frame: pd.DataFrame, status: str) -> None:
    zoa = frame[(frame.method == "ZOA") & (frame.model == "vit-micro")]
    given = frame.drop(zoa[zoa.seed == 1].index)
    if status == "pending":
        awaited = zoa[zoa.seed == 1].iloc[[0]].assign(status=status, round=None, corruption=None)
        given = pd.concat([given, awaited])
    table = build(given, "long-term")
    found = entry(table, "vit-micro W8A8", "ZOA [paper]", "average")
    assert reasons(table, found) == ["not run yet: 6 of 12 records"]


def test_a_cell_without_records_in_the_round_keeps_its_row(frame: pd.DataFrame) -> None:
    zoa = (frame.method == "ZOA") & (frame.model == "vit-micro") & (frame["round"] == LAST)
    table = build(frame[~zoa], "per-corruption")
    found = entry(table, "vit-micro W8A8", "ZOA [paper]", "average")
    assert reasons(table, found) == ["not run yet: 8 of 8 records"]


def test_nothing_run_yet_is_a_table_of_dashes(frame: pd.DataFrame) -> None:
    awaited = frame.drop_duplicates("key").assign(status="pending", round=None, corruption=None)
    table = build(awaited, "per-corruption")
    assert table.footnotes == ("not run yet", "model reset after each domain")


def test_best_is_per_group_with_ties_as_printed(frame: pd.DataFrame) -> None:
    table = build(frame, "per-corruption")
    group = "vit-micro FP32"
    tent, other = (entry(table, group, m, "fog") for m in ("TENT*", "a_b & 50% {x} [<b>]"))
    assert tent.value != other.value
    assert tent.best
    assert other.best
    assert not entry(table, group, "Source", "fog").best
    assert not entry(table, group, "TENT*", "average").best


def test_one_number_alone_is_not_best(frame: pd.DataFrame) -> None:
    table = build(frame[frame.method == "Source"], "per-corruption")
    assert not any(item.best for g in table.groups for row in g.rows for item in row.entries)


def test_cost_reports_counted_passes_and_flags_only_accuracy(frame: pd.DataFrame) -> None:
    table = build(frame, "cost")
    tent = find(table, "vit-micro FP32", "TENT*")
    assert [item.value for item in tent.entries[:3]] == [True, 1.0, 0.875]
    rows = [row for group in table.groups for row in group.rows]
    marked = {
        c.key for row in rows for e, c in zip(row.entries, table.columns, strict=True) if e.best or e.rank
    }
    assert marked <= {"accuracy", "rank"}


def test_measured_memory_is_a_column_only_if_measured(frame: pd.DataFrame) -> None:
    without = build(frame.assign(measured_mib=float("nan")), "cost")
    assert "measured_mib" not in [c.key for c in without.columns]
    table = build(frame, "cost")
    assert entry(table, "vit-micro FP32", "Source", "measured_mib").value == 1500
    missing = entry(table, "vit-micro W8A8", "Source", "measured_mib")
    assert reasons(table, missing) == ["not recorded"]


def test_skipped_updates_and_resets_are_footnotes_of_the_method(frame: pd.DataFrame) -> None:
    table = build(frame, "long-term")
    tent = find(table, "vit-micro FP32", "TENT*")
    assert reasons(table, tent) == ["model reset after each domain", "6 updates skipped"]


@pytest.mark.parametrize(
    ("told", "footnote"),
    [
        ('{"the loss was not finite": 3}', "6 updates skipped: the loss was not finite"),
        (
            '{"the loss was not finite": 1, "a batch of one image": 2}',
            "6 updates skipped: a batch of one image (4); the loss was not finite (2)",
        ),
        (
            '{"the loss was not finite": 1}',
            "6 updates skipped: the loss was not finite (2); other reasons (4)",
        ),
    ],
)
def test_skipped_updates_tell_their_reasons(frame: pd.DataFrame, told: str, footnote: str) -> None:
    told_of = frame.assign(skipped_reasons=frame.skipped_updates.gt(0).map({True: told, False: "{}"}))
    table = build(told_of, "long-term")
    assert footnote in reasons(table, find(table, "vit-micro FP32", "TENT*"))


def test_quantizers_are_named_beside_the_model_if_several(frame: pd.DataFrame) -> None:
    assert "Quantizer: PTQ4ViT." in build(frame, "cost").notes
    other = frame.assign(quantizer=frame.quantizer.where(frame.model == "vit-micro", "uniform"))
    labels = [group.label for group in build(other, "cost").groups]
    assert labels == ["vit-micro FP32", "vit-micro W8A8 (PTQ4ViT)", "resnet_50% W8A8 (uniform)"]


MIXED: dict[str, tuple[str, str, int | str]] = {
    "severities 3, 5": ("fog", "severity", 3),
    "streams at seed 0, round 2, fog-5": ("fog", "fingerprint", "another"),
    "versions 1, 2 of ZOA": ("ZOA", "version", "2"),
}


def mix(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """A frame in which the records of one model differ from the others."""
    where, column, value = MIXED[what]
    changed = frame.assign(version=frame.version.astype(str))
    chosen = (changed.model == "vit-micro") & (changed.bits == "W8A8")
    chosen &= (changed.corruption == where) | (changed.method == where)
    changed.loc[chosen, column] = value
    return changed


@pytest.mark.parametrize("what", MIXED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_refuses_to_mix(frame: pd.DataFrame, what: str, layout: str) -> None:
    given = mix(frame, what)
    text = what.replace("round 2", "round 1") if layout in FROM_THE_FIRST_ROUND else what
    with pytest.raises(TableError, match=f"table {layout}: one table would mix {text}") as caught:
        build(given, layout)
    assert "allow_mixed" in caught.value.remedy
    table = build(given, layout, allow_mixed=True)
    [mark] = table.marks
    assert table.footnotes[mark - 1].startswith(f"mixed on request: {text}")


def test_all_that_is_mixed_is_named_at_once(frame: pd.DataFrame) -> None:
    given = mix(mix(frame, "severities 3, 5"), "versions 1, 2 of ZOA")
    with pytest.raises(TableError, match=r"severities 3, 5; versions 1, 2 of ZOA"):
        build(given, "cost")


def test_mixed_versions_are_rows_of_their_own(frame: pd.DataFrame) -> None:
    both = frame.assign(version=frame.version.astype(str))
    newer = both[both.method == "ZOA"].assign(version="2", key=lambda f: f.key + "-v2")
    table = build(pd.concat([both, newer]), "cost", allow_mixed=True)
    labels = [row.label for row in table.groups[1].rows]
    assert labels == ["Source", "TENT*", "ZOA [paper] (v1)", "ZOA [paper] (v2)"]


def test_rounds_not_shown_may_differ(frame: pd.DataFrame) -> None:
    frame.loc[(frame["round"] == 1) & (frame.method == "ZOA"), "fingerprint"] = "another"
    assert build(frame, "per-corruption").marks == ()


@pytest.mark.parametrize("key", ["another", None])
def test_two_cells_in_one_place_are_never_averaged(frame: pd.DataFrame, key: str | None) -> None:
    twin = frame[(frame.method == "Source") & (frame.bits == "FP32") & (frame.seed == 0)]
    twin = twin if key is None else twin.assign(key=key)
    with pytest.raises(TableError, match=r"vit-micro none FP32 Source never: 2 (cells|records)"):
        build(pd.concat([frame, twin]), "cost", allow_mixed=True)


def test_order_of_the_frame_does_not_matter(frame: pd.DataFrame) -> None:
    for layout in LAYOUTS:
        shuffled = frame.sample(frac=1, random_state=0)
        assert build(shuffled, layout) == build(frame, layout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layout": "longterm"}, 'unknown layout "longterm". Did you mean "long-term"?'),
        ({"layout": "cost", "rond": 1}, 'unknown option "rond". Did you mean "round"?'),
        ({"layout": "cost", "round": 7}, "table cost: no records of round 7. Rounds: 1, 2"),
        ({"layout": "long-term", "round": 1}, "table long-term: it shows every round."),
    ],
)
def test_errors_name_place_problem_and_remedy(
    frame: pd.DataFrame, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(TableError) as caught:
        build(frame, **arguments)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_empty_and_foreign_frames_are_errors(frame: pd.DataFrame) -> None:
    with pytest.raises(TableError, match="there are no records"):
        build(pd.DataFrame(), "cost")
    with pytest.raises(TableError, match="lacks the columns accuracy"):
        build(frame.drop(columns="accuracy"), "cost")


def test_imports_nothing_heavy() -> None:
    heavy = {"torch", "ray", "timm", "pandas"}
    code = f"import sys, tta_bench.tables.render; print({heavy} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_numbers_of_other_code_and_of_several_environments_are_marked(frame: pd.DataFrame) -> None:
    calm = build(frame.assign(other_code=False, environment="torch 2.9, cpu"), "long-term")
    assert not any("environments" in note for note in calm.notes)
    source = frame.method == "Source"
    places = source.map({True: "torch 2.9, cpu", False: "torch 2.8, cuda"})
    table = build(frame.assign(other_code=source, environment=places), "long-term")
    row = find(table, "vit-micro FP32", "Source")
    assert any("other code" in reason for reason in reasons(table, row))
    note = "Computed in 2 environments, which may round differently: torch 2.8, cuda | torch 2.9, cpu."
    assert note in table.notes
