"""A results folder written by hand: several seeds, and everything that can go wrong in a grid."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from tta_bench.corruptions.sets import SETS
from tta_bench.storage.record import Record
from tta_bench.storage.store import ResultStore

HOSTILE = '</script><img src=x onerror="window.hacked=1"><b>&amp;{{script}}'
SHORT = (("gaussian_noise", 5), ("fog", 5), ("jpeg_compression", 5))
FULL = tuple((name, 5) for name in SETS["imagenet-c-15"])
WEIGHTS = "ab" * 32
CODE = "cafe"
ZOA = {
    "q": 1,
    "c": 0.02,
    "bank_size": 32,
    "bank_policy": "similar",
    "store": "on_shift",
    "alpha_init": "derived",
    "distribution": "rsu",
}


@dataclass(frozen=True)
class Method:
    """A row of the grid: what it is called, and by how many points each round moves it."""

    name: str
    use: str
    start: float  # accuracy (%) in round 1
    slope: float = 0.0  # points a round
    forwards: int = 1
    backwards: int = 0
    backprop: bool = False  # uses backpropagation, even if it made no backward pass
    memory_mib: float = 100.0
    reset: str = "never"
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """A benchmark: its stream, its models and methods, and which cells end badly."""

    name: str
    data: str
    models: tuple[tuple[str, str], ...]  # (name, plugin)
    methods: tuple[Method, ...]
    domains: tuple[tuple[str, int], ...]
    bits: tuple[str, ...] = ("FP32", "W8A8")
    seeds: tuple[int, ...] = (1, 2, 3)
    rounds: int = 3
    images: int = 40
    batch: int = 16
    ends: Mapping[tuple[str, str, str, int], str] = field(default_factory=dict)
    scenarios: tuple[str, ...] = ()  # if there are several
    engines: tuple[str, ...] = ()  # one for each of `bits`; empty: the simulation


DEMO = Grid(
    name="demo",
    data="cifar10-mini",
    models=(("vit-micro", "vit-micro"), (f"net {HOSTILE}", "resnet-micro")),
    methods=(
        Method("source", "source", 50),
        Method("TENT*", "tent", 52, forwards=1, backwards=1, memory_mib=700, reset="domain"),
        Method("ZOA", "zoa", 52, 2, forwards=2, memory_mib=104, params={"variant": "paper"}),
        Method("FOA", "foa", 58, forwards=28, memory_mib=110),
        Method("CoTTA", "cotta", 45, -15, forwards=3, backwards=1, memory_mib=900),
        Method(HOSTILE, "lame", 48, memory_mib=101),
    ),
    domains=SHORT,
    ends={
        **{
            ("vit-micro", "W8A8", name, seed): "unsupported"
            for name in ("TENT*", "CoTTA")
            for seed in (1, 2, 3)
        },
        ("vit-micro", "W8A8", HOSTILE, 2): "failed",
        ("vit-micro", "FP32", HOSTILE, 3): "missing",
    },
)
PAPER = Grid(
    name="paper",
    data="imagenet-c",
    models=(("vit-b", "vit-b"),),
    methods=(
        Method("Source", "source", 54, memory_mib=203),
        Method("ZOA", "zoa", 58, 0.3, forwards=2, memory_mib=204, params=ZOA),
    ),
    domains=FULL,
    bits=("W8A8",),
    seeds=(2020,),
    rounds=2,
    images=160,
    batch=64,  # as published
)
SEVERAL_STREAMS = Grid(
    name="several-streams",
    data="cifar10-mini",
    models=(("vit-micro", "vit-micro"), ("resnet-micro", "resnet-micro")),
    methods=(Method("source", "source", 50), Method("ZOA", "zoa", 60), Method("LAME", "lame", 40)),
    domains=SHORT,
    rounds=1,
    scenarios=("mixed", "continual"),
)
ENGINES = Grid(
    name="engines",
    data="cifar10-mini",
    models=(("vit-micro", "vit-micro"), ("resnet-micro", "resnet-micro")),
    methods=(Method("source", "source", 50), Method("ZOA", "zoa", 60), Method(HOSTILE, "lame", 40)),
    domains=SHORT,
    bits=("W8A8", "W8A8", "W8A8"),
    rounds=2,
    engines=("", "torch-int8", "onnxruntime"),
)
WHY = {
    "unsupported": f"needs gradients {HOSTILE}",
    "failed": f'Traceback\n  File "x.py"\nValueError: {HOSTILE}',
}


def write(grid: Grid, results: Path) -> ResultStore:
    """The results folder of a grid, as a run would leave it."""
    store = ResultStore(results, grid.name)
    store.records_folder.mkdir(parents=True)
    store.cells_folder.mkdir()
    cells = []
    for cell, method in _cells(grid):
        cells.append(cell)
        place = (cell["labels"]["model"], cell["bits"], method.name, cell["seed"])
        end = grid.ends.get(place, "ok")
        store.append(cell["key"], list(_records(grid, cell, method, end)))
        if end != "unsupported":
            store.describe(cell["key"], _description(cell, method))
    store.write_manifest(cells)
    return store


def _cells(grid: Grid) -> Iterator[tuple[Record, Method]]:
    for m, (model, use) in enumerate(grid.models):
        for q, bits in enumerate(grid.bits):
            engine = grid.engines[q] if grid.engines else ""
            for k, method in enumerate(grid.methods):
                place = {"model": model, "quantizer": f"q{q} {engine}".strip(), "order": [m, q, k]}
                for stream, seed in product(grid.scenarios or ("",), grid.seeds):
                    names = place | {"method": method.name, "stream": stream}
                    cell = _cell(grid, names, use, bits, method, seed)
                    cell["quantizer"]["params"] |= {"engine": engine} if engine else {}
                    yield cell, method


def _cell(grid: Grid, labels: Record, model: str, bits: str, method: Method, seed: int) -> Record:
    order, stream = "-".join(map(str, labels["order"])), labels["stream"]
    scenario = {"scenario": _plugin(stream)} if stream not in ("", "continual") else {}
    return scenario | {
        "data": _plugin(grid.data, fingerprint="cd" * 32),
        "model": _plugin(model, fingerprint=WEIGHTS),
        "quantizer": _plugin("fp32" if bits == "FP32" else "uniform", bits=bits),
        "method": _plugin(method.use, **method.params),
        "domains": grid.domains,
        "rounds": grid.rounds,
        "batch_size": grid.batch,
        "limit": grid.images,
        "order": "shuffled",
        "reset": method.reset,
        "seed": seed,
        "threads": 1,
        "labels": labels,
        "corruptions": [],
        "code": CODE,
        "key": f"{grid.name}-{order}{stream}-s{seed}",
        "bits": bits,
        "records_expected": grid.rounds * len(grid.domains),
        "variant": method.params.get("variant", ""),
        "backprop": method.backprop or method.backwards > 0,
    }


def _plugin(use: str, fingerprint: str = "", **params: Any) -> Record:
    return {"group": "", "code": "", "use": use, "params": params, "version": "1", "fingerprint": fingerprint}


def _records(grid: Grid, cell: Record, method: Method, end: str) -> Iterator[Record]:
    """The cell's domains; how far they go depends on how the cell ends."""
    stop = {"key": cell["key"], "status": end, "code": CODE, "reason": WHY.get(end)}
    if end == "unsupported":
        yield stop
        return
    places = [(r, *domain) for r in range(1, grid.rounds + 1) for domain in grid.domains]
    for place in places if end == "ok" else places[: len(grid.domains) + 1]:
        yield _domain(grid, cell, method, *place)
    if end == "failed":
        yield stop


def _description(cell: Record, method: Method) -> Record:
    scale = 1 if cell["bits"] == "FP32" else 0.25
    here = {"device": f"device {HOSTILE}", "cpu": "x86_64", "host": f"host {HOSTILE}"}
    versions = {"tta-bench": "0.1.0", "torch": "2.5", "timm": "1.0"}
    engine = cell["quantizer"]["params"].get("engine")
    agreed = {"name": engine, "images": 32, "same_top1": 31, "largest_difference": 0.06}
    return {
        "memory_bytes": int(method.memory_mib * scale * 2**20),
        "packed_bytes": int(scale * 2**20),
        "weights_sha256": WEIGHTS,
        "code": {},
        "environments": {"here": here | {"versions": versions}},
    } | ({} if engine is None else {"engine": agreed, "model_resident_bytes": 250 * 2**20})


def _domain(grid: Grid, cell: Record, method: Method, round_: int, corruption: str, severity: int) -> Record:
    """One record: the method's accuracy, moved a little by domain, seed and model."""
    noise = zlib.crc32(f"{cell['key']} {corruption}".encode()) % 9 - 4
    share = (method.start + method.slope * (round_ - 1) + noise) / 100
    sizes = [min(grid.batch, grid.images - done) for done in range(0, grid.images, grid.batch)]
    hits = [max(0, round(size * share)) for size in sizes]
    return {
        "key": cell["key"],
        "status": "ok",
        "code": CODE,
        "environment": "here",
        "round": round_,
        "corruption": corruption,
        "severity": severity,
        "images": grid.images,
        "correct": sum(hits),
        "correct_per_batch": hits,
        "top5_correct": grid.images,
        "ece": 0.1,
        "nonfinite_images": 2 if method.use == "cotta" and round_ == grid.rounds else 0,
        "forward_images": grid.images * method.forwards,
        "backward_images": grid.images * method.backwards,
        "skipped_updates": 0,
        "seconds": 0.5,
        "fingerprint": f"{grid.name}{cell['labels']['stream']}{cell['seed']}{round_}{corruption}",
    }
