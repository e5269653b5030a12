"""Published numbers as data: a CSV with the numbers of a paper, and a YAML that says what each one measures.

`Reference.find` returns the number that a paper has for one of our cells. Cells are matched by plugin,
parameters and protocol, never by the name of a row.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tta_bench.config.yaml import NotYaml, parse_yaml
from tta_bench.corruptions.sets import SETS
from tta_bench.errors import ConfigError, Problem, UserError

FOLDER = Path(__file__).parents[1] / "assets" / "reference"
COLUMNS = ("table", "model", "bits", "method", "round", "column", "metric", "value")
METRICS = ("accuracy", "memory_mib", "bank_mib", "forwards", "backwards", "domain_parameters")
Round = int | Literal["all", "reset"] | None


class Citation(NamedTuple):
    """Which published number belongs to a column; only an accuracy has a column and a round."""

    metric: str
    column: str = ""
    round: int | Literal["all"] | None = None


class Identity(NamedTuple):
    """The facts about a cell of ours that a publication also gives."""

    data: str
    model: str
    bits: str
    method: str
    settings: Mapping[str, Any]
    reset: str


@dataclass(frozen=True)
class Wanted:
    """The cell behind a published number; `reset` is None where resetting changes nothing.

    `domains` are those that an accuracy averages over; empty where the data has only one.
    """

    data: frozenset[str]
    domains: tuple[str, ...]
    images: int  # per domain
    model: str
    bits: str
    method: str
    settings: Mapping[str, Any]
    reset: str | None

    def matches(self, cell: Identity) -> bool:
        """Whether a cell of ours is this cell."""
        return (
            (cell.model, cell.bits, cell.method) == (self.model, self.bits, self.method)
            and cell.data in self.data
            and self.reset in (None, cell.reset)
            and all(cell.settings.get(name) == value for name, value in self.settings.items())
        )


@dataclass(frozen=True)
class Published:
    """One number of a paper; `note` says if something about it is unusual."""

    table: str
    model: str
    bits: str
    method: str
    round: Round
    column: str
    metric: str
    value: float
    half_step: float  # half a unit of its last digit: the largest error from rounding
    wanted: Wanted
    layout: str
    note: str = ""

    def belongs_to(self, citation: Citation) -> bool:
        """Whether this number belongs to a column."""
        if self.metric != citation.metric:
            return False
        if self.metric != "accuracy":
            return True
        return self.column == citation.column and self.round in (citation.round, "reset")


@dataclass(frozen=True)
class Reference:
    """All numbers of one publication."""

    name: str
    title: str
    rows: tuple[Published, ...]
    rounds: int
    severity: int
    stand_ins: frozenset[str]  # data that imitates the data of the paper

    def find(self, cell: Identity, citation: Citation, layout: str = "") -> Published | None:
        """The number for a cell and a column; if several match, the one from the table with this layout."""
        found = [row for row in self.rows if row.belongs_to(citation) and row.wanted.matches(cell)]
        return min(found, key=lambda row: row.layout != layout, default=None)


def names() -> list[str]:
    """The names of the references in the package."""
    return sorted(path.stem.replace("_", "-") for path in FOLDER.glob("*.csv"))


@lru_cache(maxsize=8)
def load(name: str) -> Reference:
    """A reference by name, or by the path of its CSV; the YAML of the same name is read too."""
    path = Path(name) if name.endswith(".csv") else FOLDER / f"{name.replace('-', '_')}.csv"
    if not path.is_file() or not path.with_suffix(".yaml").is_file():
        raise UserError(
            f'reference "{name}": not found. There are: {", ".join(names())}; or give the path of a CSV '
            "with a YAML of the same name beside it."
        )
    try:
        return _read(name, path)
    except NotYaml as error:
        file = path.with_suffix(".yaml").name
        raise UserError(f"{path}: {file}, line {error.line}: not valid YAML: {error}. Correct it.") from error
    except (csv.Error, LookupError, TypeError, AttributeError, ValueError) as error:
        raise UserError(
            f"{path}: not a reference, or its YAML does not fit: {type(error).__name__}: {error}. "
            f"Compare it with {FOLDER / 'zoa_mm25.yaml'}."
        ) from error


def _read(name: str, path: Path) -> Reference:
    about = parse_yaml(path.with_suffix(".yaml").read_text(encoding="utf-8"))
    reader = _Reader(about)
    rows = tuple(reader.rows(path))
    if reader.problems:
        raise ConfigError(str(path), reader.problems)
    return Reference(
        name=name,
        title=about["title"],
        rows=rows,
        rounds=about["rounds"],
        severity=about["severity"],
        stand_ins=frozenset(about.get("stand_ins", {}).values()),
    )


class _Reader:
    """Reads the CSV, adds to each row what the YAML says about it, and collects all problems."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.about = about
        self.problems: list[Problem] = []

    def rows(self, path: Path) -> Iterator[Published]:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                self._complain(1, f"the header must be {','.join(COLUMNS)}")
                return
            seen: dict[tuple[str, ...], int] = {}
            for line, raw in enumerate(reader, start=2):
                place = tuple(raw[name] for name in COLUMNS[:-1])
                if seen.setdefault(place, line) != line:
                    self._complain(line, f"repeats line {seen[place]}. Remove one")
                elif row := self._row(line, raw):
                    yield row

    def _row(self, line: int, raw: Mapping[str, str]) -> Published | None:
        before = len(self.problems)
        table = self.about["tables"].get(raw["table"], {})
        metric = table.get("metrics", {}).get(raw["metric"], raw["metric"])
        self._known(line, "table", raw["table"], self.about["tables"])
        self._known(line, "model", raw["model"], self.about["models"])
        self._known(line, "method", raw["method"], self.about["methods"])
        self._known(line, "metric", metric, METRICS)
        self._shaped(line, "bits", raw["bits"], r"FP32|W\d+A\d+")
        self._shaped(line, "round", raw["round"], r"[1-9]\d*|all|reset|")
        try:
            value = float(raw["value"])
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value) or value < 0:
            self._complain(line, f'value "{raw["value"]}" is not a number of at least 0')
        if len(self.problems) > before:
            return None
        facts: dict[str, Any] = dict(raw) | {"metric": metric, "round": _round(raw["round"]), "value": value}
        facts["half_step"] = 0.5 * 10 ** -len(raw["value"].partition(".")[2])
        if table.get("data_by_column"):  # each column is a data set of one domain
            facts["column"] = "average"
        wanted, note = self._wanted(raw, table), self._note(facts)
        return Published(**facts, wanted=wanted, layout=table.get("layout", ""), note=note)

    def _wanted(self, raw: Mapping[str, str], table: Mapping[str, Any]) -> Wanted:
        """The cell behind a row."""
        own = dict(self.about["methods"][raw["method"]]) | table.get("methods", {}).get(raw["method"], {})
        use, reset = own.pop("use"), own.pop("reset", table.get("reset", "never"))
        settings: dict[str, Any] = {}
        for entry in self.about.get("settings", ()):
            if entry["use"] == use and fnmatchcase(raw["model"], entry.get("model", "*")):
                settings |= entry["set"]
        data, domains = self.about["data"], SETS[self.about["corruptions"]]
        if table.get("data_by_column"):
            data, domains = raw["column"], ()
        elif raw["column"] in domains:
            domains = (raw["column"],)
        return Wanted(
            data=frozenset({data, self.about.get("stand_ins", {}).get(data, data)}),
            domains=domains,
            images=self.about["images"][data],
            model=self.about["models"][raw["model"]],
            bits=raw["bits"],
            method=use,
            settings=settings | own,
            reset=None if reset == "any" else reset,
        )

    def _note(self, facts: Mapping[str, Any]) -> str:
        found = (
            note["text"]
            for note in self.about.get("notes", ())
            if all(str(facts[key]) == str(value) for key, value in note["match"].items())
        )
        return next(found, "")

    def _known(self, line: int, what: str, name: str, names: Any) -> None:
        if name not in names:
            self._complain(line, f'unknown {what} "{name}"')

    def _shaped(self, line: int, what: str, text: str, pattern: str) -> None:
        if re.fullmatch(pattern, text) is None:
            self._complain(line, f'{what} "{text}" is not of the form {pattern}')

    def _complain(self, line: int, text: str) -> None:
        self.problems.append(Problem(f"line {line}", f"{text}."))


def _round(text: str) -> Any:
    """A round as a number, "all" or "reset"; None for a number without a round."""
    return int(text) if text.isdigit() else text or None
