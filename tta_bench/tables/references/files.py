"""Reads a reference from a CSV with the printed numbers and a YAML that says what each one is of."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from tta_bench.config.protocols import with_protocol
from tta_bench.config.schema import StreamSection
from tta_bench.config.yaml import NotYaml, parse_yaml
from tta_bench.corruptions.sets import SETS
from tta_bench.errors import ConfigError, Problem, UserError
from tta_bench.tables.references.reference import Published, PublishedSetting, Reference, Wanted
from tta_bench.tables.references.schema import Facts, PublishedTable, ReferenceFacts

FOLDER = Path(__file__).parents[2] / "assets" / "reference"
EXAMPLE = FOLDER / "zoa_mm25.yaml"
COLUMNS = ("table", "model", "bits", "method", "round", "column", "metric", "value")
ERROR = "error"  # a metric in the CSV, which becomes an accuracy
METRICS = ("accuracy", ERROR, "memory_mib", "bank_mib", "forwards", "backwards", "domain_parameters")


@lru_cache(maxsize=16)
def read(path: Path) -> Reference:
    """The reference in a CSV and the YAML of the same name beside it."""
    about_file = path.with_suffix(".yaml")
    try:
        raw = parse_yaml(about_file.read_text(encoding="utf-8"))
        about = ReferenceFacts.model_validate(raw)
        reader = _Reader(about, str(path))
        rows = tuple(reader.rows(path))
    except OSError as error:
        raise UserError(
            f"{path}: {error.filename} cannot be read: {error.strerror}. A reference has both."
        ) from error
    except NotYaml as error:
        text = f"{about_file.name}, line {error.line}: not valid YAML: {error}. Correct it."
        raise UserError(f"{path}: {text}") from error
    except ValidationError as error:
        raise ConfigError(str(path), _problems(error, about_file.name)) from None
    except (csv.Error, ValueError) as error:
        raise UserError(f"{path}: not a reference: {error}. Compare it with {EXAMPLE}.") from error
    if reader.problems:
        raise ConfigError(str(path), reader.problems)
    return Reference(title=about.title, rows=rows, stand_ins=frozenset(about.stand_ins.values()))


def _problems(error: ValidationError, file: str) -> list[Problem]:
    """What does not fit in a YAML file."""
    places = [(".".join(map(str, each["loc"])) or "the file", each["msg"]) for each in error.errors()]
    return [Problem(f"{file}: {place}", f"{text}. Compare it with {EXAMPLE}.") for place, text in places]


class _Reader:
    """Reads the CSV, adds to each row what the YAML says about it, and collects all problems."""

    def __init__(self, about: ReferenceFacts, file: str) -> None:
        self.about, self.problems = about, list[Problem]()
        self.streams = {
            name: _stream({**about.stream, **table.stream}, file) for name, table in about.tables.items()
        }
        self.settings = {name: self._setting(name) for name in about.tables}

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
        value = self._checked(line, raw)
        if value is None:
            return None
        table, network = self.about.tables[raw["table"]], self.about.models[raw["model"]]
        digits = len(raw["value"].partition(".")[2])
        metric = table.metrics.get(raw["metric"], raw["metric"])
        facts: Facts = dict(raw) | {"metric": metric, "round": _round(raw["round"]), "value": value}
        if error := metric == ERROR:
            facts |= {"metric": "accuracy", "value": round(100 - value, digits)}
        if table.data_by_column:
            facts["column"] = "average"
        return Published(
            **facts,
            half_step=0.5 * 10**-digits,
            wanted=self._wanted(raw, table),
            setting=self.settings[raw["table"]],
            lineage=network.lineage,
            layout=table.layout,
            note=self._note(facts),
            error=error,
        )

    def _checked(self, line: int, raw: Mapping[str, str]) -> float | None:
        """The value of a line; None, after complaints, if the line is not right."""
        before, about = len(self.problems), self.about
        self._known(line, "table", raw["table"], about.tables)
        self._known(line, "model", raw["model"], about.models)
        self._known(line, "method", raw["method"], about.methods)
        printed = about.tables[raw["table"]].metrics if raw["table"] in about.tables else {}
        self._known(line, "metric", printed.get(raw["metric"], raw["metric"]), METRICS)
        self._shaped(line, "bits", raw["bits"], r"FP32|W\d+A\d+")
        self._shaped(line, "round", raw["round"], r"[1-9]\d*|all|reset|")
        try:
            value = float(raw["value"])
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value) or value < 0:
            self._complain(line, f'value "{raw["value"]}" is not a number of at least 0')
        return None if len(self.problems) > before else value

    def _wanted(self, raw: Mapping[str, str], table: PublishedTable) -> Wanted:
        """The cell behind a row."""
        about, stream = self.about, self.streams[raw["table"]]
        network, own = about.models[raw["model"]], self._parameters(raw, table)
        use, reset = own.pop("use", ""), own.pop("reset", stream.reset)
        missing = network.missing or own.pop("missing", "")
        data, domains = table.data or about.data, SETS.get(stream.corruptions[0], ())
        if table.data_by_column:
            data, domains = raw["column"], ()
        elif raw["column"] in domains:
            domains = (raw["column"],)
        return Wanted(
            data=frozenset({data, about.stand_ins.get(data, data)}),
            domains=domains,
            images=table.images or about.images[data],
            model=network.use,
            bits=raw["bits"],
            method=use,
            settings=own,
            told=self._entries(raw, use, "told"),
            reset=None if reset == "any" else reset,
            stream=_stated(stream),
            weights=network.weights,
            other_weights=frozenset(network.other_weights),
            missing=missing,
        )

    def _parameters(self, raw: Mapping[str, str], table: PublishedTable) -> Facts:
        """What the YAML says about the method of a row: plugin, parameters, `reset` and `missing`."""
        own = self.about.methods[raw["method"]] | table.methods.get(raw["method"], {})
        return self._entries(raw, own.get("use", ""), "set") | own

    def _entries(self, raw: Mapping[str, str], use: str, kind: Literal["set", "told"]) -> Facts:
        """What all entries of `settings` that fit a row say."""
        found: Facts = {}
        for entry in self.about.settings:
            fits = fnmatchcase(raw["model"], entry.model) and fnmatchcase(raw["table"], entry.table)
            found |= getattr(entry, kind) if fits and entry.use == use else {}
        return found

    def _setting(self, name: str) -> PublishedSetting:
        """What all numbers of a table share."""
        table, stream = self.about.tables[name], self.streams[name]
        return PublishedSetting(
            protocol=_words(stream),
            rounds=stream.rounds,
            severity=stream.severity[0],
            source=table.source or self.about.source,
            confidence=table.confidence or self.about.confidence,
        )

    def _note(self, facts: Facts) -> str:
        return "; ".join(
            note.text
            for note in self.about.notes
            if all(str(facts[key]) == str(value) for key, value in note.match.items())
        )

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


# -- streams ---------------------------------------------------------------------------------------


def _stream(raw: Facts, file: str) -> StreamSection:
    """A stream with the values of its protocol, checked as in a benchmark file."""
    return StreamSection.model_validate(with_protocol({"stream": raw}, file)["stream"])


def _facts(stream: StreamSection) -> Facts:
    """What distinguishes streams of the same scenario and batch size."""
    names = ("order", "domain_order", "straddle", "adapt_every", "window")
    values = {name: getattr(stream, name) for name in names}
    return {name: value[0] if isinstance(value, list) else value for name, value in values.items()}


def _stated(stream: StreamSection) -> Facts:
    """What a cell on this stream states about it."""
    scenario = stream.scenario[0]
    params = {f"scenario.{name}": value for name, value in scenario.params.items()}
    return {"scenario": scenario.use, **params, "batch_size": stream.batch_size[0], **_facts(stream)}


def _words(stream: StreamSection) -> str:
    """A stream in words."""
    scenario, usual = stream.scenario[0], _facts(StreamSection())
    params = ", ".join(f"{name} {str(value).lower()}" for name, value in scenario.params.items())
    parts = [
        scenario.use + (f" ({params})" if params else ""),
        f"reset {stream.reset}",
        f"batches of {stream.batch_size[0]}",
        f"{stream.rounds} round{'s' * (stream.rounds > 1)}",
    ]
    special = {name: value for name, value in _facts(stream).items() if value != usual[name]}
    texts = (name if value is True else f"{name} {value}" for name, value in special.items())
    return ", ".join([*parts, *(text.replace("_", " ") for text in texts)])
