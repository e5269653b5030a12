"""Sections `cells` and `drivers`: what large grids cost before the first record, and workers that do nothing.

`SCALE_CELLS` and `SCALE_WORKERS` choose other sizes. Workers are real processes: 64 of them need about 20 GB.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.command import Used, measured
from bench.measure import Clock, Measure

CELLS = tuple(int(size) for size in os.environ.get("SCALE_CELLS", "100,1000,5000,20000").split(","))
WORKERS = tuple(int(count) for count in os.environ.get("SCALE_WORKERS", "1,2,8,32,64").split(","))
EXPONENT = "≤ 1.1"
NODE = "127.0.0.2"  # Ray replaces 127.0.0.1 by the address of the machine
METHODS, CORRUPTIONS = 20, ["gaussian_noise", "fog"]
CELLS_OF_DRIVERS = 400
LARGE, WORKERS_OF_LARGE = 20000, 2  # cells and workers of a run that ends when CELLS_OF_DRIVERS have records
PLUGIN = '''
import os
import time
from dataclasses import dataclass
from pathlib import Path
import torch
from tta_bench.api import Method

waited = []

@dataclass
class Idle(Method):
    """Answers without a pass through the network, once there are so many workers."""

    number: int = 0
    workers: int = 0
    meeting: str = ""
    memory = "stream"

    def setup(self, model, source):
        self.model = model

    def step(self, x):
        if self.workers and not waited and type(x) is torch.Tensor:
            waited.append(True)
            (Path(self.meeting) / str(os.getpid())).touch()
            while len(os.listdir(self.meeting)) < self.workers:
                time.sleep(0.1)
        return torch.zeros(len(x), self.model.num_classes)

    def reset(self):
        pass

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass
'''


def cells(_: Clock) -> Iterator[Measure]:
    """CPU seconds and memory of each command for each number of cells, and the exponents of growth."""
    taken: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = _plugin(Path(folder))
        for size in CELLS:
            file = _benchmark(Path(folder), size)
            place = ("--results", str(Path(folder) / f"results-{size}"))
            commands: dict[str, tuple[str, ...]] = {
                "validate": (str(file),),
                "plan": (str(file),),
                "run": (str(file), *place, "--engine", "local"),
                "status": place,
            }
            for command, words in commands.items():
                starts = command == "run"
                mark = f"{folder}/results-{size}/*/cells/*.json" if starts else ""
                used = measured(command, *words, environment=environment, mark=mark, most=int(starts))
                taken.setdefault(command, []).append((used.cpu_seconds, used.peak_mib))
                name = "run, until the first cell" if starts else command
                yield Measure(f"{size} cells", name, used.cpu_seconds, "s")
                yield Measure(f"{size} cells", f"{name}: peak memory", used.peak_mib, "MiB")
    for command, found in taken.items():
        for i, what in enumerate(("time", "peak memory")):
            value = _exponent([each[i] for each in found])
            yield Measure(command, f"exponent of {what}", value, "", EXPONENT)


def drivers(_: Clock) -> Iterator[Measure]:
    """The driver's share of a core and its memory, with workers that record as fast as they can.

    The figures are of the time after the first record. Before it, workers wait until all have started. The
    last case shows what a record costs in a large grid.
    """
    cases = [(CELLS_OF_DRIVERS, count) for count in WORKERS] + [(LARGE, WORKERS_OF_LARGE)]
    with tempfile.TemporaryDirectory() as folder:
        environment = _plugin(Path(folder))
        address, node = _cluster(Path(folder) / "ray", environment)
        try:
            for size, count in cases:
                results = Path(folder) / f"results-{size}-{count}"
                file = _benchmark(Path(folder), size, count)
                place = ("--results", str(results), "--workers", str(count))
                words = ("run", str(file), *place, "--engine", "ray", "--ray-address", address)
                mark, most = f"{results}/*/records/*.jsonl", CELLS_OF_DRIVERS if size == LARGE else 0
                used = measured(*words, environment=environment, mark=mark, most=most)
                files = results.glob("*/records/*.jsonl")
                records = sum(len(path.read_bytes().splitlines()) for path in files)
                yield from _driver_measures(f"{count} workers, {size} cells", used, records)
        finally:
            node.terminate()
            node.wait()


def _driver_measures(section: str, used: Used, records: int) -> Iterator[Measure]:
    each = used.cpu_seconds_since / records
    share = 100 * used.cpu_seconds_since / used.seconds_since
    yield Measure(section, "driver, share of a core", share, "%")
    yield Measure(section, "driver, CPU time of a record", 1000 * each, "ms")
    yield Measure(section, "records a second", records / used.seconds_since, "/s")
    yield Measure(section, "records a second at 50 %", 0.5 / each, "/s")
    yield Measure(section, "driver, peak memory", used.peak_mib, "MiB")


def _cluster(folder: Path, environment: dict[str, str]) -> tuple[str, subprocess.Popen[bytes]]:
    """The address and the process of a Ray node that claims a core for every worker."""
    with socket.socket() as free:
        free.bind((NODE, 0))
        port = free.getsockname()[1]
    head = ("--head", "--block", f"--node-ip-address={NODE}", f"--port={port}", f"--temp-dir={folder}")
    most = max(*WORKERS, WORKERS_OF_LARGE)
    cores = ("--include-dashboard=false", "--disable-usage-stats", f"--num-cpus={most}")
    command = [str(Path(sys.executable).parent / "ray"), "start", *head, *cores]
    node = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while node.poll() is None and socket.socket().connect_ex((NODE, port)):
        time.sleep(0.1)
    return f"{NODE}:{port}", node


def _plugin(folder: Path) -> dict[str, str]:
    """An environment in which the idle method is installed."""
    place = folder / "plugins"
    facts = place / "idle-1.0.dist-info"
    facts.mkdir(parents=True)
    (place / "idle_method.py").write_text(PLUGIN)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: idle\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[tta_bench.methods]\nidle = idle_method:Idle\n")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    return os.environ | token | {"PYTHONPATH": str(place)}


def _benchmark(folder: Path, size: int, workers: int = 0) -> Path:
    """A file with so many cells: methods × seeds on one small network."""
    meeting = folder / f"meeting-{size}-{workers}"
    meeting.mkdir(exist_ok=True)
    wait = {"workers": workers, "meeting": str(meeting)} if workers else {}
    methods = [{"use": "idle", "name": f"idle {i}", "number": i, **wait} for i in range(METHODS)]
    content: dict[str, Any] = {
        "name": f"scale-{size}",
        "data": "cifar10-mini",
        "models": ["vit-micro"],
        "methods": methods,
        "stream": {"corruptions": CORRUPTIONS, "limit": 8, "batch_size": 8},
        "seeds": list(range(size // METHODS)),
        "run": {"workers": "auto"},
    }
    file = folder / f"scale-{size}.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def _exponent(values: Sequence[float]) -> float:
    """The exponent between the two largest sizes, where the start of Python weighs least."""
    return (
        math.log(values[-1] / values[-2]) / math.log(CELLS[-1] / CELLS[-2]) if len(values) > 1 else math.nan
    )
