"""Reads results folders into the tidy frame: one row for every cell, round and domain; see docs/frame.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tta_bench.storage.manifest import MANIFEST, benchmarks
from tta_bench.storage.record import Record, round_and_domain, visits_in, visits_of
from tta_bench.storage.store import ResultStore

MIB = 2**20
# -- columns, in the order of the frame ---------------------------------------------------------------
NAMES = ("benchmark", "key", "data", "model", "quantizer", "bits", "method", "variant", "reset", "stream")
FACTS = (
    "version",
    "model_plugin",
    "method_plugin",
    "params",
    "identity",
    "code",
    "environment",
    "data_note",
    "engine_note",
)
MEMORY = {
    "memory_mib": "memory_bytes",
    "packed_mib": "packed_bytes",
    "measured_mib": "measured_bytes",
    "resident_mib": "model_resident_bytes",
}
ORDERS = ("model_order", "quantizer_order", "method_order")
INTEGERS = ("seed", "threads", "batch_size", "rounds")
COUNTS = (
    "images", "correct", "top5_correct", "ece", "nonfinite_images", "forward_images", "backward_images",
    "skipped_updates", "seconds",
)  # fmt: skip
TEXTS = ("skipped_reasons", "counters", "fingerprint", "host", "device")
BATCHES = ("correct_per_batch", "images_per_batch")
counts_of = itemgetter(*COUNTS)


def load_results(path: str | Path, name: str | None = None) -> pd.DataFrame:
    """The tidy frame of a results folder, of all its benchmarks or of one; or of one benchmark's folder."""
    path = Path(path)
    names = [name] if name else [path.name] if (path / MANIFEST).is_file() else benchmarks(path)
    folder = path if name or not (path / MANIFEST).is_file() else path.parent
    return load(*(ResultStore(folder, each) for each in names))


def load(*stores: ResultStore, earlier: bool = False) -> pd.DataFrame:
    """The records of the last run of each store, or of complete cells of earlier runs; each cell once."""
    frame, seen = _Columns(), set()
    for store in stores:
        for cell in store.earlier() if earlier else store.manifest()["cells"]:
            if cell["key"] not in seen:
                seen.add(cell["key"])
                facts = store.description(cell["key"]) or {}
                frame.add(store.folder.name, cell, facts, store.read_lines(cell["key"]))
    return frame.joined()


def planned(cells: Sequence[tuple[Record, Record]]) -> pd.DataFrame:
    """The frame of cells before they run, from the description of each and the facts known about it."""
    frame = _Columns()
    for cell, facts in cells:
        stop = [facts] if facts["status"] != "pending" else []
        frame.add("", cell, facts, stop)
    return frame.joined()


class _Coded:
    """A categorical column under construction: a code for each row, and the categories by first use."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}
        self.codes: list[np.ndarray] = []

    def code(self, value: Any) -> int:
        return self.known.setdefault(value, len(self.known))

    def joined(self) -> Any:
        known: Any = list(self.known)
        return pd.Categorical.from_codes(np.concatenate(self.codes), known)


class _Columns:
    """The columns of the frame, filled cell by cell with arrays that hold one value for each place."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.facts: list[dict[str, Any]] = []
        self.corruption, self.status, self.reason = _Coded(), _Coded(), _Coded()
        self.texts = {name: _Coded() for name in TEXTS}
        self.places: list[np.ndarray] = []  # [4, places]: round, severity, visit, order of the domain
        self.counts: list[np.ndarray] = []  # [numbers, places]: COUNTS and the round that it repeats
        # lists for each place: correct predictions, and images where batches hold several domains
        self.batches: dict[str, list[np.ndarray]] = {name: [] for name in BATCHES}
        for status in ("ok", "pending", "unsupported", "failed"):
            self.status.code(status)

    def add(self, benchmark: str, cell: Record, facts: Record, lines: Sequence[Record]) -> None:
        """Add the places of a cell; of a domain written twice, the last line counts."""
        places, size = _places(cell["rounds"], tuple(map(tuple, visits_of(cell)))), cell["records_expected"]
        line_of, repeats, stop = _placed(lines, places.at)
        self.sizes.append(size)
        self.facts.append({"benchmark": benchmark} | _facts(cell, facts, lines))
        self.places.append(places.numbers)
        self.corruption.codes.append(np.fromiter(map(self.corruption.code, places.names), np.int32, size))
        self._measure(size, lines, line_of, repeats, facts.get("environments", {}))
        self._end(size, lines, line_of, stop)

    def _measure(
        self,
        size: int,
        lines: Sequence[Record],
        line_of: dict[int, int],
        repeats: dict[int, int],
        environments: Record,
    ) -> None:
        """Spread what the lines of a cell say over its places."""
        ok = {number: line for number, line in enumerate(lines) if line["status"] == "ok"}
        place = np.array([at for at, number in line_of.items() if number in ok], int)
        row = dict(zip(ok, count(), strict=False))
        source = np.array([row[number] for number in line_of.values() if number in ok], int)
        counts = np.full((len(COUNTS) + 2, size), np.nan)
        batches = {name: np.full(size, None, object) for name in BATCHES}
        if ok:
            table = np.array(list(map(counts_of, ok.values())), float)
            counts[: len(COUNTS), place] = table[source].T
            known = [line.get("class_accuracy", np.nan) for line in ok.values()]
            counts[len(COUNTS), place] = np.array(known, float)[source]
            for name, lists in batches.items():
                found = np.empty(len(ok), object)
                found[:] = [line.get(name) for line in ok.values()]
                lists[place] = found[source]
        counts[len(COUNTS) + 1, list(repeats)] = list(repeats.values())
        self.counts.append(counts)
        for name, lists in batches.items():
            self.batches[name].append(lists)
        for name, values in _texts(ok.values(), environments):
            column, codes = self.texts[name], np.full(size, -1, np.int32)
            codes[place] = np.fromiter(map(column.code, values), np.int32, len(ok))[source]
            column.codes.append(codes)

    def _end(self, size: int, lines: Sequence[Record], line_of: dict[int, int], stop: Record | None) -> None:
        """The status of each place; a failure without a place is one of all."""
        status = np.full(size, self.status.code("pending" if stop is None else stop["status"]), np.int32)
        reason = np.full(size, self.reason.code("" if stop is None else stop["reason"]), np.int32)
        if stop is None:
            for at, number in line_of.items():
                status[at] = self.status.code(lines[number]["status"])
                reason[at] = self.reason.code(lines[number].get("reason", ""))
        self.status.codes.append(status)
        self.reason.codes.append(reason)

    def joined(self) -> pd.DataFrame:
        """The frame."""
        if not self.facts:
            return pd.DataFrame()
        of_cells, cell = pd.DataFrame(self.facts), np.repeat(np.arange(len(self.sizes)), self.sizes)
        place, measured = np.concatenate(self.places, axis=1), np.concatenate(self.counts, axis=1)
        number = dict(zip((*COUNTS, "class_accuracy", "repeats"), measured, strict=True))
        images = number["images"]
        texts = {name: column.joined() for name, column in self.texts.items()}

        def spread(name: str) -> Any:
            values = of_cells[name]
            if name in (*NAMES, *FACTS):
                codes, known = pd.factorize(values)
                return pd.Categorical.from_codes(codes[cell], known)
            return values.to_numpy()[cell]

        return pd.DataFrame(
            {
                **{name: spread(name) for name in (*NAMES, "seed")},
                "round": place[0],
                "corruption": self.corruption.joined(),
                "severity": place[1],
                "visit": place[2],
                "status": self.status.joined(),
                "reason": self.reason.joined(),
                "n": images,
                "correct": number["correct"],
                "accuracy": 100 * number["correct"] / images,
                "top5": 100 * number["top5_correct"] / images,
                "class_accuracy": 100 * number["class_accuracy"],
                "ece": 100 * number["ece"],
                "forwards": number["forward_images"] / images,
                "backwards": number["backward_images"] / images,
                **{name: number[name] for name in ("skipped_updates", "nonfinite_images", "seconds")},
                **texts,
                "repeats": number["repeats"],
                **{name: np.concatenate(found) for name, found in self.batches.items()},
                **{name: spread(name) for name in ("threads", "agreement", *MEMORY)},
                **{name: spread(name) for name in ("backprop", "other_code", *FACTS)},
                **{name: spread(name) for name in ("batch_size", "rounds", *ORDERS)},
                "domain_order": place[3],
            },
            copy=False,
        )


def _placed(
    lines: Sequence[Record], index: Mapping[tuple[Any, ...], int]
) -> tuple[dict[int, int], dict[int, int], Record | None]:
    """The line of each place, the round that it repeats, and a failure that is about no place."""
    line_of: dict[int, int] = {}
    repeats: dict[int, int] = {}
    stop = None
    for number, line in enumerate(lines):
        rounds = line["rounds"] if "rounds" in line and line["status"] == "ok" else [line.get("round")]
        if rounds[0] is None:
            stop = line
            continue
        if line["status"] != "ok" and "corruption" not in line:  # of a segment with several domains
            left = [at for place, at in index.items() if place[0] == rounds[0] and at not in line_of]
            line_of |= dict.fromkeys(left, number)
            continue
        _, *visit = round_and_domain(line)
        for later, round_ in enumerate(rounds):
            at = index[(round_, *visit)]
            line_of[at] = number
            repeats.pop(at, None)
            if first := rounds[0] if later else line.get("repeats"):
                repeats[at] = first
    return line_of, repeats, stop


class _Places(NamedTuple):
    """The places of a cell: one for each round and each visit of a domain in it."""

    numbers: np.ndarray  # [4, places]: round, severity, visit, order of the domain
    names: list[str]  # of the corruptions
    at: dict[tuple[Any, ...], int]  # by round, corruption, severity and visit


@lru_cache(maxsize=64)
def _places(rounds: int, visits: tuple[tuple[tuple[str, int, int], ...], ...]) -> _Places:
    """The places of cells with these visits in each round, or in all."""
    found = [
        (number, *visit, order)
        for number in range(1, rounds + 1)
        for order, visit in enumerate(visits_in(visits, number))
    ]
    numbers = np.array([(number, *rest) for number, _, *rest in found], np.int16).T
    return _Places(numbers, [place[1] for place in found], {place[:-1]: i for i, place in enumerate(found)})


def _texts(ok: Iterable[Record], environments: Record) -> Iterator[tuple[str, Iterable[str]]]:
    """The texts of a cell's results, by column; mappings as JSON."""
    for name in ("skipped_reasons", "counters"):
        found = (line.get(name) for line in ok)
        yield name, (json.dumps(each, sort_keys=True) if each else "{}" for each in found)
    yield "fingerprint", (line["fingerprint"] for line in ok)
    for name in ("host", "device"):
        known = {key: each[name].split(",")[0] for key, each in environments.items()}
        yield name, map(known.get, (line["environment"] for line in ok), repeat(""))


def _facts(cell: Record, facts: Record, lines: Sequence[Record]) -> dict[str, Any]:
    """The facts that all rows of a cell share."""
    labels, sizes = cell["labels"], {name: facts.get(field) for name, field in MEMORY.items()}
    own = ("key", "bits", "seed", "reset", "code", "rounds", "batch_size", "variant", "backprop", "threads")
    return {
        **{name: cell[name] for name in own},
        **{name: labels[name] for name in ("model", "quantizer", "method")},
        **dict(zip(ORDERS, labels["order"], strict=True)),
        **{name: np.nan if size is None else size / MIB for name, size in sizes.items()},
        "data": cell["data"]["use"],
        "model_plugin": cell["model"]["use"],
        "method_plugin": cell["method"]["use"],
        "params": json.dumps(cell["method"]["params"], sort_keys=True),
        "version": cell["method"]["version"],
        "stream": labels.get("stream", ""),
        "identity": json.dumps(identity(cell), sort_keys=True),
        "data_note": facts.get("data_note") or "",
        "engine_note": _engine_note(facts.get("engine")),
        "agreement": _agreement(facts.get("engine")),
        "other_code": any(line.get("code", cell["code"]) != cell["code"] for line in lines),
        "environment": _environment(facts.get("environments", {}), lines),
    }


def _agreement(engine: Record | None) -> float:
    """The share of images (%) on which an integer engine predicts the class of the simulation."""
    return np.nan if engine is None else 100 * engine["same_top1"] / engine["images"]


def _engine_note(engine: Record | None) -> str:
    """The footnote of a cell on an integer engine; empty for a simulation."""
    if engine is None:
        return ""
    name, expected = f"{engine['name']} {engine.get('version', '')}".strip(), engine.get("expected_sites")
    sites = f"; {engine['integer_sites']} of {expected} sites in integers" if expected else ""
    return (
        f"{name} against the simulation when it was loaded: the same class on "
        f"{engine['same_top1']} of {engine['images']} calibration images, logits within "
        f"{engine['largest_difference']:.2g}{sites}"
    )


def identity(cell: Record) -> dict[str, Any]:
    """All facts that the cells of one row must share, by name, except the method and the seed."""
    found = {name: cell[name] for name in ("domains", "rounds", "batch_size", "limit", "order", "threads")}
    for axis in ("model", "quantizer", "data"):
        plugin = cell[axis]
        found |= {f"{axis}.{name}": plugin[name] for name in ("use", "version", "fingerprint")}
        # The fingerprint covers the content of files; their paths may differ between machines.
        kept = {k: v for k, v in plugin["params"].items() if not (plugin["fingerprint"] and _is_path(v))}
        found |= {f"{axis}.{name}": value for name, value in kept.items()}
    if "visits" in cell:  # other domains than those of the file, or several times
        places = {tuple(place[:2]) for visits in cell["visits"] for place in visits}
        found |= {"domains": sorted(places), "listed": cell["domains"]}
    later = ("domain_order", "straddle", "adapt_every", "window")
    found |= {name: cell[name] for name in later if name in cell}
    if scenario := cell.get("scenario"):
        found |= {"scenario": scenario["use"], "scenario.version": scenario["version"]}
        found |= {f"scenario.{name}": value for name, value in scenario["params"].items()}
    return found | {f"corruption.{each['use']}": each["version"] for each in cell["corruptions"]}


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and ("/" in value or "\\" in value)


def _environment(known: Record, lines: Iterable[Record]) -> str:
    """The versions and devices behind a cell that may change results by rounding, as text."""
    used = dict.fromkeys(line["environment"] for line in lines if "environment" in line)
    return "; ".join(dict.fromkeys(_named(known.get(each)) for each in used))


def _named(environment: Record | None) -> str:
    if environment is None:
        return "an unknown environment"
    versions, where = environment["versions"], f"{environment['device']}, {environment['cpu']}"
    return f"torch {versions['torch']}, timm {versions['timm']}, {where}"
