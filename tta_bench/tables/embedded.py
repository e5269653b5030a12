"""The results of the default benchmark that ship with the package: does this machine get the same?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from tta_bench.description import Description, columns
from tta_bench.errors import UserError
from tta_bench.tables.references.reference import Published, PublishedSetting, Reference, Wanted

if TYPE_CHECKING:
    from pandas import DataFrame, Series

NAME, DATA = "embedded", "cifar10-mini"
FILE = Path(__file__).parents[1] / "assets" / "embedded" / "quickstart.csv"
CELL = ["key", "model", "quantizer", "bits", "method", "seed"]
DOMAIN = ["corruption", "severity"]
ORDER = ["model_order", "quantizer_order", "method_order", "domain_order", "round"]
Agreement = Literal["equal", "within", "off", "not run"]
AGREEMENTS: tuple[Agreement, ...] = ("equal", "within", "off", "not run")
# Points of mean accuracy over the 15 domains in one round. Processors round sums differently: predictions
# without adaptation change for a few images; an adapting method carries each change on to later batches.
# docs/data.md has the differences that were measured between instruction sets.
STEADY_POINTS, ADAPTING_POINTS = 0.3, 1.5


@dataclass(frozen=True)
class CellAgreement:
    """A cell of the reference and ours; differences are in points of mean accuracy over domains."""

    model: str
    quantizer: str
    bits: str
    method: str
    reference: float  # accuracy in the last round
    ours: float | None
    largest_difference: float | None  # over the rounds
    images_that_differ: int | None  # sum over rounds and domains of the difference in correct predictions
    verdict: Agreement


def reference() -> Reference:
    """The results of the default benchmark that ship with this package."""
    return Reference(
        title="the results of the default benchmark that ship with tta-bench",
        rows=tuple(_published(pd.read_csv(FILE, dtype={"correct": str}))),
        compares=lambda frame: summarize(compare(frame)),
    )


def _published(table: DataFrame) -> Iterator[Published]:
    """The accuracy of every cell in every round, on each domain and on average."""
    for key, cell in table.groupby("key", sort=False):
        rounds = int(cell["rounds"].iloc[0])
        correct = np.broadcast_to(_counts(cell), (len(cell), rounds))
        accuracy = 100 * correct / cell["n"].to_numpy()[:, None]
        names = (*cell["corruption"], "average")
        means = np.vstack([accuracy, accuracy.mean(axis=0)])
        number = partial(_number, cell.iloc[0], str(key), tuple(cell["corruption"]))
        for name, values in zip(names, means, strict=True):
            for round_, value in enumerate(values, start=1):
                yield number(name, round_, float(value))
        yield number("average", "all", float(accuracy.mean()))


def _number(
    first: Series, key: str, domains: tuple[str, ...], column: str, round: Any, value: float
) -> Published:
    """One accuracy of a cell, which `key` identifies."""
    model, _, method = key.split(".")[:3]
    setting = PublishedSetting(
        protocol=f"continual, reset never, batches of 64, {first['rounds']} rounds",
        rounds=int(first["rounds"]),
        severity=int(first["severity"]),
        source="tta_bench/assets/embedded/quickstart.csv",
        confidence="computed by this package",
    )
    own = domains if column == "average" else (column,)
    wanted = Wanted(
        data=frozenset({DATA}), domains=own, images=int(first["n"]), model=model, bits=first["bits"],
        method=method, settings={}, reset=None, stream={"key": key},
    )  # fmt: skip
    return Published(
        table="default", model=first["model"], bits=first["bits"], method=first["method"], round=round,
        column=column, metric="accuracy", value=value, half_step=0.0, wanted=wanted, setting=setting,
        lineage="embedded in this package",
    )  # fmt: skip


def wide(frame: DataFrame) -> DataFrame:
    """The finished cells of a tidy frame as the file holds them: a row for each cell and domain.

    `correct` has a number for each round, or a single one if all rounds repeat the first.
    """
    done = frame[frame["key"].isin(_finished(frame))]
    by_round = done.sort_values(ORDER).groupby([*CELL, *DOMAIN], observed=True, sort=False)
    found = by_round.agg(
        n=("n", "first"), rounds=("rounds", "first"), correct=("correct", list)
    ).reset_index()
    steady = done.groupby("key", observed=True)["repeats"].count()
    repeated = found["key"].map(steady).astype(int) > 0
    counts = [values[:1] if once else values for values, once in zip(found["correct"], repeated, strict=True)]
    return found.astype({"n": int}).assign(correct=[" ".join(f"{value:.0f}" for value in v) for v in counts])


def compare(frame: DataFrame, file: Path = FILE) -> list[CellAgreement]:
    """Every cell of the reference, with a verdict."""
    reference = pd.read_csv(file, dtype={"correct": str})
    ours = wide(frame)
    keys = set(ours["key"])
    if not keys & set(reference["key"]):
        raise UserError(
            f"--reference {NAME}: no finished cell of these results is in it. It has the cells of "
            "benchmark.yaml as it ships with this version. Run that file, without --limit or other changes."
        )
    mine = dict(list(ours.groupby("key", observed=True, sort=False)))
    return [_judge(cell, mine.get(key)) for key, cell in reference.groupby("key", sort=False)]


def summarize(found: Sequence[CellAgreement]) -> Description:
    """All verdicts as a table, and the number of each."""
    counts = Counter(cell.verdict for cell in found)
    head = (
        f"{len(found)} cells of the default benchmark: {', '.join(f'{counts[v]} {v}' for v in AGREEMENTS)}.\n"
        f"Within: the mean accuracy of every round differs by at most {STEADY_POINTS:g} points, or by "
        f"{ADAPTING_POINTS:g} if the method adapts over the stream. Other processors round differently."
    )
    rows = [asdict(cell) for cell in found]
    shown = [{name.replace("_", " "): _text(value) for name, value in row.items()} for row in rows]
    data = {"reference": NAME, "verdicts": {v: counts[v] for v in AGREEMENTS}, "cells": rows}
    return Description("\n\n".join([head, columns(shown)]), data)


def _finished(frame: DataFrame) -> list[str]:
    """Keys of the cells of which every place has a result."""
    ok = frame.groupby("key", observed=True)["status"].agg(lambda status: bool((status == "ok").all()))
    return list(ok.index[ok])


def _judge(cell: DataFrame, ours: DataFrame | None) -> CellAgreement:
    """The verdict on one cell of the reference."""
    first, expected = cell.iloc[0], _counts(cell)
    about = {name: str(first[name]) for name in ("model", "quantizer", "bits", "method")}
    last = 100 * expected[:, -1].sum() / cell["n"].sum()
    if ours is None:
        return CellAgreement(**about, reference=last, ours=None, largest_difference=None,
                             images_that_differ=None, verdict="not run")  # fmt: skip
    placed = cell[DOMAIN].merge(ours.astype({"corruption": str}), on=DOMAIN, how="left", validate="1:1")
    found = _counts(placed)
    difference = 100 * (found - expected).sum(0) / cell["n"].sum()
    largest = float(np.abs(difference).max())
    limit = ADAPTING_POINTS if expected.shape[1] > 1 else STEADY_POINTS
    equal = bool((found == expected).all())
    return CellAgreement(
        **about,
        reference=float(last),
        ours=float(100 * found[:, -1].sum() / cell["n"].sum()),
        largest_difference=largest,
        images_that_differ=int(np.abs(found - expected).sum()),
        verdict="equal" if equal else "within" if largest <= limit else "off",
    )


def _counts(cell: DataFrame) -> np.ndarray:
    """Correct predictions as [domains, rounds]."""
    return np.array([text.split() for text in cell["correct"]], dtype=int)


def _text(value: object) -> str:
    return "–" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
