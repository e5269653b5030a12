"""Layouts that put several cells in one row: values of a parameter, protocols, sets of images."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from tta_bench.tables.build import build
from tta_bench.tables.table import Row, Table, TableEntry, TableError

ROUNDS, DOMAINS = 3, ("fog", "snow")


def cell(method: str, accuracy: float = 50.0, plugin: str = "zoa", **changes: Any) -> pd.DataFrame:
    """A complete cell: `accuracy` in the first round, one point more in each that follows."""
    params = changes.pop("params", {})
    common = {
        "key": f"{method}/{params}/{changes}", "model": "vit", "quantizer": "uniform", "method": method,
        "bits": "W8A8", "variant": "", "reset": "never", "version": "1", "seed": 1, "status": "ok",
        "reason": "", "backprop": False, "memory_mib": 200.0, "packed_mib": 80.0, "measured_mib": None,
        "model_order": 0, "quantizer_order": 0, "method_order": 0, "data": "pets", "model_plugin": "vit-b",
        "method_plugin": plugin, "params": json.dumps(params), "batch_size": 64, "rounds": ROUNDS,
        "severity": 5, "n": 640, "forwards": 2.0, "backwards": 0.0, "skipped_updates": 0,
        "skipped_reasons": "{}", "fingerprint": None,
    }  # fmt: skip
    rows = [
        {"round": number, "corruption": name, "domain_order": i, "accuracy": accuracy + number - 1}
        for number in range(1, ROUNDS + 1)
        for i, name in enumerate(DOMAINS)
    ]
    return pd.DataFrame([common | row | changes for row in rows])


def sweep(name: str, *values: Any, **changes: Any) -> list[pd.DataFrame]:
    """Cells as `{use: zoa, name: ZOA, <name>: [values]}` gives them, each value a point better."""
    return [
        cell(f"ZOA ({name}={v})", 50.0 + i, params={name: v, "seed": 1}, method_order=i, **changes)
        for i, v in enumerate(values)
    ]


def rows(table: Table) -> dict[str, Row]:
    return {row.label: row for group in table.groups for row in group.rows}


def entries(table: Table, label: str) -> dict[str, TableEntry]:
    keys = [column.key for column in table.columns]
    return dict(zip(keys, rows(table)[label].entries, strict=True))


def values(table: Table, label: str) -> dict[str, float | bool | None]:
    return {key: entry.value for key, entry in entries(table, label).items()}


# -- sweep -----------------------------------------------------------------------------------------


def test_values_become_columns_in_the_order_of_the_file() -> None:
    table = build(pd.concat(sweep("c", 0.05, 0.005)), "sweep")
    assert values(table, "ZOA") == {"c=0.05": 52.0, "c=0.005": 53.0}
    assert [column.name for column in table.columns] == ["0.05", "0.005"]


def test_methods_without_the_parameter_have_a_column_of_their_own() -> None:
    source = cell("Source", 40.0, "source", method_order=9)
    table = build(pd.concat([*sweep("c", 0.05, 0.005), source]), "sweep")
    assert table.columns[0].key == "fixed"
    assert values(table, "Source")["fixed"] == 42.0
    assert values(table, "ZOA")["fixed"] is None
    assert table.footnotes == ("not part of the benchmark",)


def test_memory_is_shown_where_the_parameter_changes_it() -> None:
    lean, rich = sweep("bank_size", 0, 32)
    table = build(pd.concat([lean, rich.assign(memory_mib=200.25)]), "sweep")
    found = values(table, "ZOA")
    assert (found["memory bank_size=0"], found["memory bank_size=32"]) == (0.0, 0.25)
    assert "beyond that of the leanest value, which takes 200.00 MiB" in " ".join(table.notes)
    assert len(build(pd.concat([lean, rich]), "sweep").columns) == 2


def test_names_given_by_hand_share_a_row_under_the_plugins_name() -> None:
    first = cell("V1", 50.0, params={"bank_size": 0})
    second = cell("full", 51.0, params={"bank_size": 32})
    assert values(build(pd.concat([first, second]), "sweep"), "zoa") == {
        "bank_size=0": 52.0,
        "bank_size=32": 53.0,
    }


def test_of_two_sweeps_one_is_chosen_and_the_other_makes_rows() -> None:
    given = pd.concat(
        [cell(f"ZOA (c={c}, lr={lr})", 50.0, params={"c": c, "lr": lr}) for c in (0.1, 0.2) for lr in (1, 2)]
    )
    with pytest.raises(TableError, match=r"several parameters .* --parameter; varying: c, lr"):
        build(given, "sweep")
    by_c = build(given, "sweep", parameter="c")
    assert list(rows(by_c)) == ["ZOA (lr=1)", "ZOA (lr=2)"]
    assert list(rows(build(given, "sweep", parameter="lr"))) == ["ZOA (c=0.1)", "ZOA (c=0.2)"]


@pytest.mark.parametrize(
    ("parameter", "message"),
    [(None, "no parameter takes several values"), ("lr", '"lr" does not take several values')],
)
def test_a_sweep_needs_something_swept(parameter: str | None, message: str) -> None:
    with pytest.raises(TableError, match=message):
        build(cell("ZOA", params={"lr": 1}), "sweep", parameter=parameter)


# -- protocols, datasets, ablation, bank ------------------------------------------------------------


def test_the_two_protocols_of_a_method_share_a_row() -> None:
    starred = cell("TENT*", 60.0, "tent", params={"lr": 1}, reset="domain")
    plain = cell("TENT", 50.0, "tent", params={"lr": 1})
    other = cell("TENT lr 2", 40.0, "tent", params={"lr": 2})
    table = build(pd.concat([starred, plain, other]), "reset-vs-continual")
    assert values(table, "TENT") == {"reset": 62.0, "round_1": 50.0, "round_3": 52.0, "lost": 10.0}
    assert values(table, "TENT lr 2") == {"reset": None, "round_1": 40.0, "round_3": 42.0, "lost": None}
    with pytest.raises(TableError, match="there is only one"):
        build(plain, "reset-vs-continual")


def test_datasets_are_columns_each_at_its_own_last_round() -> None:
    cats = cell("ZOA", 50.0, params={})
    dogs = cell("ZOA", 70.0, params={}, data="dogs", key="dogs")
    dogs = dogs[dogs["round"] == 1]
    table = build(pd.concat([cats, dogs]), "datasets")
    assert values(table, "ZOA") == {"pets": 52.0, "dogs": 70.0}
    with pytest.raises(TableError, match="one table would mix data dogs, pets"):
        build(pd.concat([cats, dogs]), "per-corruption")


def test_ablation_shows_first_and_last_round_and_their_difference() -> None:
    found = values(build(cell("V1", 50.0), "ablation"), "V1")
    assert found == {"forwards": 2.0, "round_1": 50.0, "round_3": 52.0, "gain": 2.0, "memory_mib": 200.0}


def bank(name: str, **settings: Any) -> pd.DataFrame:
    params = {"bank_size": 32, "bank_policy": "similar", "store": "every", "store_every": 5} | settings
    return cell(name, params=params, memory_mib=200 + params["bank_size"] / 64)


def test_the_bank_is_counted_by_schedule_and_memory() -> None:
    """60 batches of 64 images: 11 vectors at one every 5, of 1/64 MiB each."""
    given = [
        bank("none", bank_size=0),
        bank("all", bank_policy="keep_all", bank_size=8),
        bank("few", bank_size=8),
        bank("roomy"),
        bank("shifts", store="on_shift"),
        cell("Source", plugin="source"),
    ]
    table = build(pd.concat(given), "bank")
    found = {label: list(values(table, label).values())[:2] for label in rows(table)}
    assert found == {
        "none": [0, 0],
        "all": [11, 11 / 64],
        "few": [8, 8 / 64],
        "roomy": [11, 11 / 64],
        "shifts": [None, 32 / 64],
        "Source": [0, 0],
    }
    assert values(build(bank("few"), "bank"), "few")["bank_mib"] is None


@pytest.mark.parametrize(("reset", "vectors"), [("never", 4.5), ("domain", 5.5)])
def test_counted_vectors_are_those_at_the_end(reset: str, vectors: float) -> None:
    """Two seeds; of a method that forgets after each domain, the most that it held."""
    cells = []
    for seed, last in ((1, 4), (2, 5)):
        found = bank("shifts", store="on_shift").assign(seed=seed, key=f"s{seed}", reset=reset)
        counts = [last + 1, *[1] * (len(found) - 2), last]
        cells.append(found.assign(counters=[json.dumps({"stored_vectors": n}) for n in counts]))
    table = build(pd.concat([*cells, bank("none", bank_size=0)]), "bank")
    shown = values(table, "shifts")
    assert (shown["domain_parameters"], shown["bank_mib"]) == (vectors, vectors / 64)


# -- seeds ------------------------------------------------------------------------------------------


def test_every_layout_gives_the_interval_of_the_mean_over_seeds() -> None:
    cells = [cell("ZOA", 50.0 + i, seed=i, key=str(i)) for i in (0, 1, 2)]
    snow = pd.concat(cells).assign(corruption=lambda f: f.corruption.replace("fog", "frost"))
    given = pd.concat([pd.concat(cells), snow[snow.corruption == "frost"].assign(domain_order=2)])
    table = build(given, "long-term")
    found = entries(table, "ZOA")["round_1"]
    assert (found.value, found.std, found.seeds) == (51.0, 1.0, 3)
    half = pytest.approx(4.302653 / 3**0.5, rel=1e-6)  # t of 2 degrees of freedom, as domains do not differ
    assert found.interval == half
    assert any("over other seeds and other domains of this kind (two-way, from 3" in n for n in table.notes)
    assert entries(build(given, "per-corruption"), "ZOA")["fog"].interval == half  # over seeds alone
    assert entries(build(given, "cost"), "ZOA")["accuracy"].interval == half
    assert entries(build(given[given.seed == 0], "long-term"), "ZOA")["round_1"].interval is None


# -- scenarios -------------------------------------------------------------------------------------


def on_stream(name: str, accuracy: float, **changes: Any) -> list[pd.DataFrame]:
    """Two methods on one stream, with a fingerprint and facts of its own."""
    identity = json.dumps({"scenario": name, "order": name, "domains": None})
    common = {"stream": name, "fingerprint": name, "identity": identity} | changes
    return [cell("TENT", accuracy, **common), cell("ZOA", accuracy + 5, method_order=1, **common)]


def test_scenarios_are_columns_in_the_order_of_the_file() -> None:
    frame = pd.concat([*on_stream("mixed", 40.0), *on_stream("continual", 50.0)])
    table = build(frame, "scenarios")
    assert [column.key for column in table.columns] == ["mixed", "continual"]
    assert values(table, "TENT") == {"mixed": 42.0, "continual": 52.0}, "at the last round"
    assert values(table, "ZOA") == {"mixed": 47.0, "continual": 57.0}


def test_groups_of_several_streams_are_in_the_order_of_the_file() -> None:
    names = ("mixed, severity 5", "mixed, severity 3", "correlated", "continual")
    frame = pd.concat([part for name in names for part in on_stream(name, 40.0)])
    found = [group.stream for group in build(frame, "cost").groups]
    assert found == ["mixed, severity 3", "mixed, severity 5", "correlated", "continual"]


def test_a_scenario_may_have_other_severities_than_the_others() -> None:
    rising = [part.assign(severity=[*[3] * 5, 5]) for part in on_stream("gradual", 30.0)]
    frame = pd.concat([*rising, *on_stream("continual", 50.0)])
    assert values(build(frame, "scenarios"), "TENT") == {"gradual": 32.0, "continual": 52.0}
    other = pd.concat([*on_stream("continual", 50.0)[:1], *on_stream("continual", 50.0, severity=3)[1:]])
    with pytest.raises(TableError, match="severities 3, 5"):
        build(other, "long-term")


def test_one_scenario_of_different_images_is_refused() -> None:
    frame = pd.concat([*on_stream("mixed", 40.0)[:1], *on_stream("mixed", 40.0, fingerprint="other")[1:]])
    with pytest.raises(TableError, match="streams at seed 1"):
        build(frame, "scenarios")


def test_severities_of_a_gradual_stream_are_columns() -> None:
    places = {"round": 1, "severity": [1, 1, 3, 3, 5, 5], "visit": [1, 2] * 3}
    scores = [80.0, 70.0, 65.0, 55.0, 40.0, 40.0]
    gradual = cell("TENT", rounds=1).assign(corruption="fog", accuracy=scores, **places)
    clean = gradual.iloc[[0]].assign(corruption="clean", severity=0, accuracy=99.0)
    table = build(pd.concat([gradual, clean]), "severities")
    average = {"severity_1": 75.0, "severity_3": 60.0, "severity_5": 40.0, "average": pytest.approx(175 / 3)}
    assert values(table, "TENT") == average
    with pytest.raises(TableError, match="the stream has no corruptions"):
        build(clean, "severities")


def test_a_stream_without_a_severity_of_others_is_not_part_of_its_column() -> None:
    """Before: `not recorded`."""
    mild, strong = (
        cell("TENT", severity=severity, stream=f"severity {severity}", visit=1, key=f"TENT{severity}")
        for severity in (1, 5)
    )
    waiting = cell("ZOA", severity=5, stream="severity 5", visit=1).assign(status="pending", accuracy=None)
    table = build(pd.concat([mild, strong, waiting]), "severities")
    found = {
        (group.stream, row.label): [entry.value for entry in row.entries]
        for group in table.groups
        for row in group.rows
    }
    assert found["severity 1", "TENT"] == [52.0, None, 52.0]
    assert found["severity 5", "TENT"] == [None, 52.0, 52.0]
    assert found["severity 5", "ZOA"] == [None] * 3
    assert set(table.footnotes) == {"not part of the benchmark", "not run yet: 2 of 2 records"}


def test_columns_of_severities_can_be_of_other_scores() -> None:
    table = build(cell("TENT", class_accuracy=44.0), "severities", columns=["class_accuracy"])
    assert values(table, "TENT") == {"severity_5": 52.0, "average": 52.0, "class_accuracy": 44.0}
