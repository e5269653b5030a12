"""Sections `grid` and `workers`: what the harness saves, what it costs, and what a second worker brings."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import torch
import yaml
from typer.testing import CliRunner

from bench.measure import REPEATS, Clock, Measure
from tta_bench import config, registry
from tta_bench import grid as cells
from tta_bench.api import Method, Model, Source
from tta_bench.cli import app
from tta_bench.grid import Cell
from tta_bench.plan import make_method, passes
from tta_bench.warm import Warm

DEFAULT = Path(__file__).parent.parent / "benchmark.yaml"
SIX: dict[str, Any] = {
    "name": "six",
    "data": "cifar10-mini",
    "models": ["vit-micro"],
    "quantizers": [{"use": "ptq4vit", "bits": "W8A8"}],
    "methods": ["source", "t3a", "lame", "shift", {"use": "foa", "k": 2}, "zoa"],
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
SMALLER = ("-o", "stream.limit=128")  # the default grid, in half its time
TURNS = 3


def grid(_: Clock) -> Iterator[Measure]:
    """Passes and time saved by sharing, time that is not the models', time until something is seen."""
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "six.yaml"
        file.write_text(yaml.safe_dump(SIX))
        yield _saved_passes("default grid", DEFAULT, "")
        yield _saved_passes("six methods, 10 rounds", file, "≤ 0.55")
        yield _saved_time(file, Path(folder))
        yield _overhead(Path(folder))
        yield _first_record(Path(folder))
    torch.set_num_threads(threads)  # the harness sets its own


def workers(_: Clock) -> Iterator[Measure]:
    """The default grid on one and on two workers, from the first record on: Ray's start is not work."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            for count in rates:
                place = Path(folder) / f"{turn}-{count}"
                first, last = _timed(place, *SMALLER, "--engine", "ray", "--workers", str(count))
                rates[count].append(1 / (last - first))
    pairs = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    value = statistics.median(rates[2]) / statistics.median(rates[1])
    yield Measure("default grid", "2 workers / 1 worker", value, "×", "≥ 1.7", min(pairs), max(pairs))


def _saved_passes(section: str, file: Path, limit: str) -> Measure:
    cost = passes(_cells(file))
    return Measure(section, "passes / naive passes", cost.executed / cost.naive, "×", limit)


def _saved_time(file: Path, folder: Path) -> Measure:
    """One run of six methods over six loops, each of them alone and through all rounds."""
    _run(file, folder / "warm-up")  # corruptions and calibrations are made here, for both
    start = time.perf_counter()
    _run(file, folder / "shared")
    shared = time.perf_counter() - start
    start = time.perf_counter()
    for cell in _cells(file):
        _naive_loop(cell)
    return Measure(
        "six methods, 10 rounds", "shared / naive time", shared / (time.perf_counter() - start), "×", "≤ 0.45"
    )


@torch.no_grad()
def _naive_loop(cell: Cell) -> None:
    """What a script does: every batch of every round through the network."""
    warm = Warm()
    data, model, method = warm.data(cell.data), warm.model(cell), make_method(cell)
    stream = cell.stream(len(data.test_labels()))
    method.setup(model, Source(data.source_images(), cell.batch_size))
    for round in range(1, cell.rounds + 1):
        for domain in stream.domains:
            for index in stream.batches(round, domain):
                x = data.test_images(domain, index)
                method.step(model.features(x) if method.consumes == "features" else x)


def _overhead(folder: Path) -> Measure:
    """The share of a run that is spent neither in a model nor in a method."""
    _run(DEFAULT, folder / "prepared", "--only", "method=source")
    inside = Inside()
    with inside:
        start = time.perf_counter()
        _run(DEFAULT, folder / "watched")
        wall = time.perf_counter() - start
    return Measure(
        "default grid, 1 worker", "outside the models", 100 * (1 - inside.seconds / wall), "%", "≤ 5"
    )


def _first_record(folder: Path) -> Measure:
    starts = [_timed(folder / str(i), "--engine", "local", to_the_end=False)[0] for i in range(REPEATS)]
    value = statistics.median(starts)
    return Measure("default grid", "until the first record", value, "s", "", min(starts), max(starts))


class Inside:
    """While entered, adds up the time in models' passes and in methods; calls within calls count once."""

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


def _cells(file: Path) -> Sequence[Cell]:
    return cells.expand(config.load(file), str(file))


def _run(file: Path, results: Path, *options: str) -> None:
    """A run in this process."""
    arguments = ["run", str(file), "--engine", "local", "--results", str(results), *options]
    outcome = CliRunner().invoke(app, arguments)
    if outcome.exit_code:
        raise RuntimeError(outcome.output) from outcome.exception


def _timed(results: Path, *options: str, to_the_end: bool = True) -> tuple[float, float]:
    """A run in a process of its own: seconds until its first record, and until its end."""
    command = [
        sys.executable,
        "-m",
        "tta_bench.cli",
        "run",
        str(DEFAULT),
        "--results",
        str(results),
        *options,
    ]
    start, first = time.perf_counter(), None
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            if first is None and _has_record(results):
                first = time.perf_counter() - start
                if not to_the_end:
                    process.kill()
            time.sleep(0.05)
    if first is None:
        raise RuntimeError(f"{' '.join(command)} wrote no record and ended with {process.returncode}")
    return first, time.perf_counter() - start


def _has_record(results: Path) -> bool:
    """Whether a domain's record, not only a cell's description, has been written."""
    return any('"kind":"domain"' in path.read_text() for path in results.glob("*/records/*.jsonl"))
