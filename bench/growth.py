"""Section `growth`: time and memory of `table`, `status` and `report` as a results folder grows."""

from __future__ import annotations

import math
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import linear_regression
from typing import Any

from bench.command import measured
from bench.measure import Clock, Measure
from tta_bench.corruptions.sets import SETS
from tta_bench.storage.record import Record
from tta_bench.storage.store import ResultStore

SIZES = tuple(int(size) for size in os.environ.get("GROWTH_SIZES", "100,1000,5000,20000").split(","))
SEEDS, BITS, METHODS = 5, ("FP32", "W8A8"), 10  # 100 cells for each model
DOMAINS = [(name, 5) for name in SETS["imagenet-c-15"]]
ROUNDS, IMAGES, BATCH = 10, 640, 64
REPEATING = 2  # of the methods: their rounds are equal, and one line holds all
EXPONENT = "≤ 1.1"
LEAST = 1000  # cells from which on growth is measured


def growth(_: Clock) -> Iterator[Measure]:
    """Seconds and peak memory of each command for each number of cells, and the exponent of growth."""
    with tempfile.TemporaryDirectory() as folder:
        taken: dict[str, list[tuple[float, float]]] = {}
        for size in SIZES:
            results = Path(folder) / str(size)
            write(results, size)
            for command, options in commands(Path(folder)).items():
                used = measured(command, "--results", str(results), *options)
                taken.setdefault(command, []).append((used.cpu_seconds, used.peak_mib))
                yield Measure(f"{size} cells", command, used.cpu_seconds, "s")
                yield Measure(f"{size} cells", f"{command}: peak memory", used.peak_mib, "MiB")
        for command, found in taken.items():
            for i, what in enumerate(("time", "peak memory")):
                yield Measure(
                    command, f"exponent of {what}", exponent([each[i] for each in found]), "", EXPONENT
                )


def commands(folder: Path) -> dict[str, tuple[str, ...]]:
    """The commands that read a results folder, with their options."""
    return {"table": (), "status": (), "report": ("--output", str(folder / "report.html"))}


def exponent(values: Sequence[float]) -> float:
    """The slope of the line through the logarithms, without small sizes, where the start of Python weighs."""
    found = [(math.log(size), math.log(value)) for size, value in zip(SIZES, values, strict=True)]
    large = [pair for pair, size in zip(found, SIZES, strict=True) if size >= LEAST]
    return linear_regression(*zip(*large, strict=True)).slope if len(large) > 1 else math.nan


# -- the folder --------------------------------------------------------------------------------------


def write(results: Path, cells: int) -> None:
    """A results folder as a run leaves it: models × bit-widths × methods × seeds, all complete."""
    store = ResultStore(results, "growth")
    store.make_folders()
    rows = [_row(number) for number in range(cells)]
    for row in rows:
        store.append(row["key"], list(_records(row)), sync=False)
        store.describe(row["key"], _description(row))
    store.write_manifest(rows)


def _row(number: int) -> Record:
    """The cell of a number, as a manifest describes it."""
    rest, seed = divmod(number, SEEDS)
    rest, method = divmod(rest, METHODS)
    model, q = divmod(rest, len(BITS))
    names = {"model": f"model {model}", "quantizer": "uniform", "method": f"method {method}"}
    return {
        "data": _plugin("imagenet-c", fingerprint="cd" * 32),
        "model": _plugin(f"model-{model}", fingerprint=f"{model:064x}"),
        "quantizer": _plugin("uniform" if q else "fp32", bits=BITS[q]),
        "method": _plugin(f"method-{method}", lr=0.001, steps=1, seed=seed),
        "domains": DOMAINS, "rounds": ROUNDS, "batch_size": BATCH, "limit": IMAGES, "order": "shuffled",
        "reset": "never", "seed": seed, "threads": 1, "labels": names | {"order": [model, q, method]},
        "corruptions": [], "code": "cafe" * 3, "key": f"model-{model}.{BITS[q]}.method-{method}.s{seed}",
        "bits": BITS[q], "records_expected": ROUNDS * len(DOMAINS), "variant": "", "backprop": method > 5,
    }  # fmt: skip


def _plugin(use: str, fingerprint: str = "", **params: Any) -> Record:
    return {"group": "", "code": "", "use": use, "params": params, "version": "1", "fingerprint": fingerprint}


def _description(row: Record) -> Record:
    versions = {"tta-bench": "0.3.0", "torch": "2.9", "timm": "1.0"}
    here = {"device": "cpu", "cpu": "x86_64", "host": "bench", "versions": versions}
    mib = 100 + row["labels"]["order"][2]
    return {"memory_bytes": mib * 2**20, "packed_bytes": mib * 2**18, "environments": {"here": here}}


def _records(row: Record) -> Iterator[Record]:
    """A record for each round and domain."""
    repeating = row["labels"]["order"][2] < REPEATING
    for number in range(1, ROUNDS + 1):
        for corruption, severity in DOMAINS:
            first = 1 if repeating else number
            repeats = {"repeats": 1} if repeating and number > 1 else {}
            yield _record(row, first, corruption, severity) | {"round": number} | repeats


def _record(row: Record, number: int, corruption: str, severity: int) -> Record:
    """One record; its accuracy depends on cell, round and domain."""
    (model, q, method), seed = row["labels"]["order"], row["seed"]
    draw = zlib.crc32(f"{row['key']} {number} {corruption}".encode())
    share = 0.3 + 0.4 * (model * 37 % 101) / 101 - 0.03 * q + 0.01 * method + (draw % 97 - 48) / 2000
    hits = [min(BATCH, round(BATCH * share) + (draw >> i) % 5) for i in range(IMAGES // BATCH)]
    return {
        "key": row["key"], "status": "ok", "code": row["code"], "environment": "here", "round": number,
        "corruption": corruption, "severity": severity, "images": IMAGES, "correct": sum(hits),
        "correct_per_batch": hits, "top5_correct": min(IMAGES, sum(hits) + 60), "ece": draw % 1000 / 10_000,
        "nonfinite_images": 0, "forward_images": IMAGES * (1 + method),
        "backward_images": IMAGES * (method > 5),
        "skipped_updates": 0, "skipped_reasons": {}, "seconds": 1 + draw % 100 / 50,
        "fingerprint": f"{zlib.crc32(f'{seed} {corruption}'.encode()):032x}",
    }  # fmt: skip
