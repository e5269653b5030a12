"""Kill a random process of a running grid every few seconds, and check that nothing is lost.

    python tools/soak.py --minutes 20 --every 10 --seed 0

Two Ray nodes on this machine run a small grid again and again. The driver, a worker or the second node is
killed (SIGKILL); half of the kills wait until the run has recovered from the last one. Then the tool does
what a user would do: it runs the same command again, or starts a new node. Every finished grid must give the
tables of an undisturbed one, byte for byte. `--every 0` kills nothing, to watch memory over a long run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from loopback import Cluster, Run, kill_session, resident_bytes

SAMPLE_SECONDS = 5.0
PATIENCE_SECONDS = 180.0  # for a run to recover from a kill on a busy machine
TIMEOUT_SECONDS = 3600.0  # for one grid; a run that takes longer hangs
GRID: dict[str, Any] = {
    "name": "soak",
    "data": "cifar10-mini",
    "models": ["resnet-micro", "vit-micro"],
    "quantizers": ["fp32", {"use": "uniform", "bits": "W8A8"}],
    "methods": ["source", "t3a", "lame", "tent", "eata", {"use": "foa", "k": 2}, "zoa"],
    "stream": {
        "corruptions": ["gaussian_noise", "fog", "contrast", "pixelate"],
        "batch_size": 16,
        "limit": 96,
    },
    "run": {"checkpoint_minutes": 0.02},  # short, so that there are checkpoints inside domains
}


@dataclass
class Fault:
    """One kill, and how long it took until there was a new record or checkpoint."""

    kind: str
    second: float
    clock: float  # the same moment, comparable with times of files
    records: int
    recovered_seconds: float | None = None


@dataclass
class Turn:
    """One grid from its first cell to its last."""

    seconds: float
    kills: int
    equal: bool
    again: int  # records that were on disk at a kill and were computed again


@dataclass
class Sample:
    """The memory of a process at some time."""

    second: float
    kind: str
    pid: int
    mib: float


@dataclass
class Soak:
    """The kills, grids and memory samples so far."""

    folder: Path
    every: float
    random: random.Random
    cluster: Cluster
    begun: float = field(default_factory=time.monotonic)
    faults: list[Fault] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    given_up: int = 0  # runs with a failed cell, because its worker died too often
    surprises: list[str] = field(default_factory=list)  # exits of the driver that were not kills

    def __post_init__(self) -> None:
        self.log = self.folder / "driver.log"
        self.next_kill = self.next_sample = 0.0
        self.patient = True  # whether the next kill waits until the run has recovered

    @property
    def second(self) -> float:
        return time.monotonic() - self.begun

    def turn(self, run: Run, calm: bytes, until: float) -> None:
        """Run one grid to its end; kill nothing after `until`."""
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        begun, kills, ever = self.second, len(self.faults), set[bytes]()
        self.next_kill = self.second + self._pause()
        driver = run.start(self.log, "--overwrite", "failed")
        try:
            while driver.poll() != 0:
                time.sleep(0.2)
                self._sample(driver.pid)
                records = run.records()
                self._look(run, new=bool(records - ever))
                if driver.poll():
                    self._explain(driver.returncode)
                    driver = run.start(self.log, "--overwrite", "failed")
                elif self.every and self.next_kill < self.second < until and driver.poll() is None:
                    ever |= records
                    self._kill(driver, len(records))
                if self.second - begun > TIMEOUT_SECONDS:
                    raise TimeoutError(f"no end within {TIMEOUT_SECONDS:.0f} s: {_tail(self.log)}")
        finally:
            driver.kill()
        self._look(run, new=True)
        equal, again = run.tables() == calm, len(ever - run.records())
        self.turns.append(Turn(self.second - begun, len(self.faults) - kills, equal, again))

    def _look(self, run: Run, new: bool) -> None:
        """Note whether the run has recovered from the last kill, and set the time of the next one."""
        last = self.faults[-1] if self.faults else None
        if last and last.recovered_seconds is None and (new or run.checkpointed() > last.clock):
            last.recovered_seconds = self.second - last.second
            if self.patient:
                self.next_kill = self.second + self._pause()

    def _pause(self) -> float:
        return self.every * self.random.uniform(0.5, 1.5)

    def _kill(self, driver: subprocess.Popen[bytes], records: int) -> None:
        """Kill the driver, a worker, or all processes of the second node."""
        kinds: dict[str, Callable[[], None]] = {"driver": driver.kill, "node": self._lose_node}
        workers = self.cluster.workers()
        if workers:
            kinds["worker"] = lambda: os.kill(self.random.choice(workers), signal.SIGKILL)
        kind = self.random.choice(sorted(kinds))
        with suppress(ProcessLookupError):  # it has just ended
            kinds[kind]()
        if kind == "driver":
            driver.wait()
        self.faults.append(Fault(kind, self.second, time.time(), records))
        self.patient = self.random.random() < 0.5  # other kills come while the run is recovering
        self.next_kill = self.second + self._pause() + (PATIENCE_SECONDS if self.patient else 0)
        print(f"{self.second:6.0f} s  {kind} killed, {records} records", file=sys.stderr, flush=True)

    def _lose_node(self) -> None:
        kill_session(self.cluster.other)
        self.cluster.restart_other()

    def _explain(self, code: int) -> None:
        if code == 1:
            self.given_up += 1
        elif code != -signal.SIGKILL:
            self.surprises.append(f"exit {code} at {self.second:.0f} s: {_tail(self.log)}")

    def _sample(self, driver: int) -> None:
        if self.second < self.next_sample:
            return
        self.next_sample = self.second + SAMPLE_SECONDS
        for kind, pids in {"driver": [driver], "worker": self.cluster.workers()}.items():
            for pid in pids:
                self.samples.append(Sample(self.second, kind, pid, resident_bytes(pid) / 2**20))

    def summary(self, calm_seconds: float) -> dict[str, Any]:
        """The figures to report."""
        kills = Counter(fault.kind for fault in self.faults)
        recovery = {
            kind: [f.recovered_seconds for f in self.faults if f.kind == kind and f.recovered_seconds]
            for kind in sorted(kills)
        }
        extra = sum(turn.seconds for turn in self.turns) - calm_seconds * len(self.turns)
        return {
            "minutes": self.second / 60,
            "kills": dict(kills),
            "grids": len(self.turns),
            "equal_tables": sum(turn.equal for turn in self.turns),
            "records_computed_again": sum(turn.again for turn in self.turns),
            "runs_with_a_failed_cell": self.given_up,
            "surprises": self.surprises,
            "undisturbed_seconds": calm_seconds,
            "lost_seconds_per_kill": extra / max(1, len(self.faults)),
            "seconds_until_it_went_on": {
                kind: {"median": statistics.median(found), "max": max(found)}
                for kind, found in recovery.items()
                if found
            },
            "memory_mib": {kind: self._quarters(kind) for kind in ("driver", "worker")},
        }

    def _quarters(self, kind: str) -> list[float]:
        """The median over processes in each quarter of the time, without starting processes."""
        mine = [s for s in self.samples if s.kind == kind and s.mib > 150]
        parts = [[s.mib for s in mine if int(4 * s.second / (self.second + 1)) == i] for i in range(4)]
        return [round(statistics.median(part), 1) for part in parts if part]


def _tail(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-3:])


def soak(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run undisturbed once, then under kills until the time is over; return all figures."""
    file = folder / "soak.yaml"
    file.write_text(yaml.safe_dump(GRID | {"stream": GRID["stream"] | {"rounds": arguments.rounds}}))
    cluster = Cluster(folder / "ray", {"TTA_BENCH_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"})
    try:
        calm = Run(file, folder / "calm", cluster)
        begun = time.monotonic()
        if calm.start(folder / "calm.log").wait() != 0:
            raise SystemExit(f"the undisturbed run failed: {_tail(folder / 'calm.log')}")
        calm_seconds, tables = time.monotonic() - begun, calm.tables()
        print(f"undisturbed: {calm_seconds:.0f} s, {len(calm.records())} records", file=sys.stderr)
        made = Soak(folder, arguments.every, random.Random(arguments.seed), cluster)
        while made.second < 60 * arguments.minutes:
            made.turn(Run(file, folder / f"turn-{len(made.turns)}", cluster), tables, 60 * arguments.minutes)
        details = {name: list(map(asdict, getattr(made, name))) for name in ("faults", "turns", "samples")}
        return {"command": " ".join(sys.argv), **made.summary(calm_seconds), **details}
    finally:
        cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long to kill processes")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between kills, on average")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kills")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the stream, for longer grids")
    parser.add_argument("--output", type=Path, default=Path("soak.json"), help="file for the figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        found = soak(arguments, Path(folder))
    arguments.output.write_text(json.dumps(found, indent=1))
    print(yaml.safe_dump({k: v for k, v in found.items() if k not in ("faults", "turns", "samples")}))
    if found["equal_tables"] < found["grids"] or found["surprises"]:
        raise SystemExit("something was lost: see above")


if __name__ == "__main__":
    main()
