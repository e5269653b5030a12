"""Sections `grid`, `added` and `workers`: what the harness saves and costs, and a second worker."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import torch
import yaml
from typer.testing import CliRunner

from bench.measure import REPEATS, Clock, Measure
from tta_bench import config
from tta_bench.api import Method, Model
from tta_bench.cli import app
from tta_bench.grid import Cell, expand
from tta_bench.planning.tasks import passes
from tta_bench.plugins import registry

DEFAULT = Path(__file__).parent.parent / "benchmark.yaml"
SIX: dict[str, Any] = {
    "name": "six",
    "data": "cifar10-mini",
    "models": ["vit-micro"],
    "quantizers": [{"use": "ptq4vit", "bits": "W8A8"}],
    "methods": ["source", "t3a", "lame", "shift", {"use": "foa", "name": "foa", "k": 2}, "zoa"],
    "stream": {
        "corruptions": ["gaussian_noise", "fog", "contrast", "snow", "pixelate"],
        "severity": 5,
        "rounds": 10,
        "batch_size": 64,
        "limit": 128,
    },
    "seeds": [2020],
    "run": {"engine": "local"},
}
METHODS = ("source", "t3a", "lame", "shift", "foa", "zoa")
FEATURE_METHODS = ["neo", "cofa", "prior-correction"]
UNSHARED = ("-o", "run.share=false")
SMALLER = ("-o", "stream.limit=128")  # the default grid, in half its time
TURNS = 3


def grid(_: Clock) -> Iterator[Measure]:
    """Passes and time saved by sharing, time outside the models, time until the first record."""
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        file = _six(Path(folder))
        yield _saved_passes("default grid", DEFAULT, "")
        yield _saved_passes("six methods, 10 rounds", file, "≤ 0.55")
        run_locally(file, Path(folder) / "warm-up")  # corruptions, calibrations and byte counts, for all
        yield _saved_time(1, _seconds, file, Path(folder), TURNS)
        yield _overhead(Path(folder))
        yield _first_record(Path(folder))
    torch.set_num_threads(threads)  # the harness sets its own


def added(clock: Clock) -> Iterator[Measure]:
    """The time of a grid with three more methods that read Source's features, over its time without them.

    The stream has as many batches as that of the default grid, beside which the start of a cell is short.
    """
    corruptions = "imagenet-c-15"
    grids = {"without": ["source", "zoa"], "with": ["source", "zoa", *FEATURE_METHODS]}
    found: dict[str, list[float]] = {name: [] for name in grids}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS + 1):
            for name, methods in grids.items():
                place = Path(folder) / f"{turn}-{name}"
                seconds = _seconds(_grid_of(Path(folder), methods, corruptions), place, clock=clock)
                if turn:  # the first turn fills the caches
                    found[name].append(seconds)
    turns = [b / a for a, b in zip(*found.values(), strict=True)]
    value = statistics.median(found["with"]) / statistics.median(found["without"])
    name = "three feature methods more"
    yield Measure("source and zoa, 10 rounds", name, value, "×", "≤ 1.03", min(turns), max(turns))


def workers(_: Clock) -> Iterator[Measure]:
    """The speed-up by a second worker, from the first record to the last, without Ray's start and end."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            for count in rates:
                first, last = _timed(DEFAULT, Path(folder) / f"{turn}-{count}", *SMALLER, *_ray(count))
                rates[count].append(1 / (last - first))
        pairs = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
        value = statistics.median(rates[2]) / statistics.median(rates[1])
        yield Measure("default grid", "2 workers / 1 worker", value, "×", "≥ 1.7", min(pairs), max(pairs))
        yield _saved_time(2, _seconds_of_two, _six(Path(folder)), Path(folder), 1, "≤ 0.45")


def _ray(workers: int) -> tuple[str, ...]:
    return ("--engine", "ray", "--workers", str(workers))


def _saved_passes(section: str, file: Path, limit: str) -> Measure:
    cost = passes(_cells(file))
    return Measure(section, "passes / naive passes", cost.executed / cost.naive, "×", limit)


def _saved_time(
    workers: int, seconds: Callable[..., float], file: Path, folder: Path, turns: int, limit: str = ""
) -> Measure:
    """Time of one run with six methods over the time of six runs with one method each."""
    found = []
    for turn in range(turns):
        place = folder / f"turn-{turn}"
        shared = seconds(file, place / "shared")
        alone = [seconds(file, place / name, *UNSHARED, "--only", f"method={name}") for name in METHODS]
        found.append(shared / sum(alone))
    section, value = f"six methods, {workers} worker{'s' * (workers > 1)}", statistics.median(found)
    return Measure(section, "shared / separate time", value, "×", limit, min(found), max(found))


def _overhead(folder: Path) -> Measure:
    """The share of a second run that is spent neither in a model nor in a method."""
    run_locally(DEFAULT, folder / "prepared")  # later runs find byte counts and calibrations in the cache
    with Inside() as inside:
        wall = _seconds(DEFAULT, folder / "watched")
    return Measure(
        "default grid, 1 worker", "outside the models", 100 * (1 - inside.seconds / wall), "%", "≤ 5"
    )


def _first_record(folder: Path) -> Measure:
    starts = [
        _timed(DEFAULT, folder / str(i), "--engine", "local", to_the_end=False)[0] for i in range(REPEATS)
    ]
    value = statistics.median(starts)
    return Measure("default grid", "until the first record", value, "s", "", min(starts), max(starts))


class Inside:
    """A context manager that adds up the time in models and methods; nested calls count once."""

    def __init__(self) -> None:
        self.seconds, self._deep = 0.0, False
        self._before: list[tuple[type, str, Any]] = []

    def __enter__(self) -> Inside:
        plugins = [registry.load("methods", name) for name in registry.names("methods")]
        bases = {base for plugin in plugins for base in plugin.__mro__ if issubclass(base, Method)}
        for owner in (*bases, Model):
            for name in ("setup", "step", "features", "continue_from"):
                if name in vars(owner):
                    self._watch(owner, name)
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, function in self._before:
            setattr(owner, name, function)

    def _watch(self, owner: type, name: str) -> None:
        function = vars(owner)[name]
        self._before.append((owner, name, function))

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._deep:
                return function(*args, **kwargs)
            self._deep, start = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._deep = False
                self.seconds += time.perf_counter() - start

        setattr(owner, name, timed)


def _six(folder: Path) -> Path:
    return _grid_of(folder, SIX["methods"])


def _grid_of(folder: Path, methods: list[Any], corruptions: Any = SIX["stream"]["corruptions"]) -> Path:
    """A benchmark file with these methods on the stream of SIX."""
    stream = SIX["stream"] | {"corruptions": corruptions}
    file = folder / f"{len(methods)}.yaml"
    file.write_text(yaml.safe_dump(SIX | {"methods": methods, "stream": stream}))
    return file


def _cells(file: Path) -> Sequence[Cell]:
    return expand(config.load(file), str(file))


def run_locally(file: Path, results: Path, *options: str) -> None:
    """A run in this process."""
    arguments = ["run", str(file), "--engine", "local", "--results", str(results), *options]
    outcome = CliRunner().invoke(app, arguments)
    if outcome.exit_code:
        raise RuntimeError(outcome.output) from outcome.exception


def _seconds(file: Path, results: Path, *options: str, clock: Clock = time.perf_counter) -> float:
    """Seconds of a run in this process."""
    start = clock()
    run_locally(file, results, *options)
    return clock() - start


def _seconds_of_two(file: Path, results: Path, *options: str) -> float:
    """Seconds of a run on two workers, from its first record to its last."""
    first, last = _timed(file, results, *_ray(2), *options)
    return last - first


def _timed(file: Path, results: Path, *options: str, to_the_end: bool = True) -> tuple[float, float]:
    """A run in a process of its own: seconds until its first record, and until its last."""
    command = [sys.executable, "-m", "tta_bench.cli", "run", str(file), "--results", str(results), *options]
    start, first = time.time(), None
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            if first is None and _has_record(results):
                first = time.time() - start
                if not to_the_end:
                    process.kill()
            time.sleep(0.05)
    if first is None:
        raise RuntimeError(f"{' '.join(command)} wrote no record and ended with {process.returncode}")
    return first, max(path.stat().st_mtime for path in results.glob("*/records/*.jsonl")) - start


def _has_record(results: Path) -> bool:
    """Whether a domain's record has been written."""
    return any(path.stat().st_size for path in results.glob("*/records/*.jsonl"))
