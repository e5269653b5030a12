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

from bench.measure import Clock, Measure

CELLS = tuple(int(size) for size in os.environ.get("SCALE_CELLS", "100,1000,5000,20000").split(","))
WORKERS = tuple(int(count) for count in os.environ.get("SCALE_WORKERS", "1,2,8,32,64").split(","))
EXPONENT = "≤ 1.1"
NODE = "127.0.0.2"  # Ray replaces 127.0.0.1 by the address of the machine
METHODS = 20
CELLS_OF_DRIVERS = 400
PLUGIN = '''
from dataclasses import dataclass
import torch
from tta_bench.api import Method

@dataclass
class Idle(Method):
    """Answers without a pass through the network."""

    number: int = 0
    memory = "stream"

    def setup(self, model, source):
        self.model = model

    def step(self, x):
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
                seconds, mib, _wall = _measured(environment, command, *words, stop=command == "run")
                taken.setdefault(command, []).append((seconds, mib))
                name = "run, until the first cell" if command == "run" else command
                yield Measure(f"{size} cells", name, seconds, "s")
                yield Measure(f"{size} cells", f"{name}: peak memory", mib, "MiB")
    for command, found in taken.items():
        for i, what in enumerate(("time", "peak memory")):
            value = _exponent([each[i] for each in found])
            yield Measure(command, f"exponent of {what}", value, "", EXPONENT)


def drivers(_: Clock) -> Iterator[Measure]:
    """The driver's share of a core and its memory, with workers that record as fast as they can."""
    with tempfile.TemporaryDirectory() as folder:
        environment = _plugin(Path(folder))
        file = _benchmark(Path(folder), CELLS_OF_DRIVERS)
        address, node = _cluster(Path(folder) / "ray", environment)
        try:
            for count in WORKERS:
                place = ("--results", str(Path(folder) / f"workers-{count}"), "--workers", str(count))
                words = (str(file), *place, "--engine", "ray", "--ray-address", address)
                seconds, mib, wall = _measured(environment, "run", *words)
                records = CELLS_OF_DRIVERS * 2
                yield Measure(
                    f"{count} workers", "driver, CPU time / wall time", 100 * seconds / wall, "%", "≤ 50"
                )
                yield Measure(
                    f"{count} workers", "driver, CPU time of a record", 1000 * seconds / records, "ms"
                )
                yield Measure(f"{count} workers", "records a second", records / wall, "/s")
                yield Measure(f"{count} workers", "driver, peak memory", mib, "MiB")
        finally:
            node.terminate()
            node.wait()


def _cluster(folder: Path, environment: dict[str, str]) -> tuple[str, subprocess.Popen[bytes]]:
    """The address and the process of a Ray node that claims a core for every worker."""
    with socket.socket() as free:
        free.bind((NODE, 0))
        port = free.getsockname()[1]
    head = ("--head", "--block", f"--node-ip-address={NODE}", f"--port={port}", f"--temp-dir={folder}")
    cores = ("--include-dashboard=false", "--disable-usage-stats", f"--num-cpus={max(WORKERS)}")
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


def _benchmark(folder: Path, size: int) -> Path:
    """A file with so many cells: methods × seeds on one small network."""
    methods = [{"use": "idle", "name": f"idle {number}", "number": number} for number in range(METHODS)]
    content: dict[str, Any] = {
        "name": f"scale-{size}",
        "data": "cifar10-mini",
        "models": ["vit-micro"],
        "methods": methods,
        "stream": {"corruptions": ["gaussian_noise", "fog"], "limit": 8, "batch_size": 8},
        "seeds": list(range(size // METHODS)),
        "run": {"workers": "auto"},
    }
    file = folder / f"scale-{size}.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def _measured(environment: dict[str, str], *words: str, stop: bool = False) -> tuple[float, float, float]:
    """CPU seconds, peak memory (MiB) and seconds of a command; with `stop`, only until its first record."""
    command = [sys.executable, "-m", "tta_bench.cli", *words]
    begun = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        while stop and process.poll() is None and not _recorded(words):
            time.sleep(0.02)
        if stop:
            process.kill()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not stop:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**10, time.monotonic() - begun


def _recorded(words: Sequence[str]) -> bool:
    """Whether the first cell of a run has started."""
    return any(Path(words[words.index("--results") + 1]).glob("*/cells/*.json"))


def _exponent(values: Sequence[float]) -> float:
    """The exponent between the two largest sizes, where the start of Python weighs least."""
    return (
        math.log(values[-1] / values[-2]) / math.log(CELLS[-1] / CELLS[-2]) if len(values) > 1 else math.nan
    )
