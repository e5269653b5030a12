"""Faulty plugins on the path, and real processes to run, kill and compare."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tools.loopback import RAY, Cluster, kill_session
from tta_bench.cli import app
from tta_bench.errors import UserError

ENTRY_POINTS = """
[tta_bench.methods]
drift = faulty:Drift
feature-drift = faulty:FeatureDrift
unsaved = faulty:Unsaved
unsavable = faulty:Unsavable
miscounts = faulty:Miscounts
[tta_bench.models]
nan-model = faulty:NanModel
no-fingerprint = faulty:NoFingerprint
[tta_bench.data]
small-source = faulty:SmallSource
broken-data = faulty:BrokenData
unpreparable = faulty:Unpreparable
no-images = faulty:NoImages
too-many-classes = faulty:TooManyClasses
wrong-size = faulty:WrongSize
no-dataclass = faulty:NoDataclass
"""


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is an installed package to whoever has it on the path."""
    folder = tmp_path_factory.mktemp("plugins")
    shutil.copy(Path(__file__).parent / "faulty.py", folder)
    facts = folder / "faulty-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


@pytest.fixture(autouse=True)
def _installed(plugins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugins for this process and for those it starts."""
    monkeypatch.syspath_prepend(str(plugins))
    monkeypatch.setenv("PYTHONPATH", str(plugins))


@pytest.fixture(scope="module")
def watched_cluster(plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes with a dashboard, and without the plugins; a job is started by the `python` on their path."""
    path = os.pathsep.join([str(RAY.parent), os.environ["PATH"]])  # as in an activated environment
    settings = {"PYTHONPATH": "", "PATH": path, "RAY_metrics_report_interval_ms": "1000"}
    made = Cluster(tmp_path_factory.mktemp("ray"), settings, dashboard=True)
    yield made
    made.stop()


def benchmark(methods: Sequence[Any], **changes: Any) -> dict[str, Any]:
    """A grid of a few seconds: two domains, two rounds, three batches a domain."""
    stream = {"corruptions": ["gaussian_noise", "fog"], "rounds": 2, "batch_size": 8, "limit": 24}
    return {
        "name": "faults",
        "data": "small-source",
        "models": ["resnet-micro"],
        "methods": list(methods),
        "stream": stream | changes.pop("stream", {}),
        "run": {"engine": "local"} | changes.pop("run", {}),
        **changes,
    }


class Bench:
    """One benchmark file, and the commands a user would type about it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "faults.yaml"
        self.results = folder / "results"
        self.started: list[subprocess.Popen[str]] = []

    def write(self, methods: Sequence[Any], **changes: Any) -> None:
        self.file.write_text(yaml.safe_dump(benchmark(methods, **changes)))

    def start(self, *flags: str | Path, **options: Any) -> subprocess.Popen[str]:
        """`tta-bench run` in a session of its own, as in a terminal of its own."""
        command = [sys.executable, "-m", "tta_bench.cli", "run", self.file, "--results", self.results, *flags]
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )
        self.started.append(process)
        return process

    def run(self, *flags: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """The command to its end."""
        process = self.start(*flags, **options)
        output, errors = process.communicate(timeout=240)
        assert "Traceback" not in errors, errors
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def here(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """The same command in this process, which saves starting one."""
        outcome = CliRunner().invoke(app, ["run", str(self.file), "--results", str(self.results), *flags])
        code, text = outcome.exit_code, outcome.stderr
        if isinstance(outcome.exception, UserError):
            code, text = 2, text + str(outcome.exception)
        elif outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
            raise outcome.exception
        return subprocess.CompletedProcess(["tta-bench"], code, outcome.stdout, text)

    def tables(self, format: str = "csv") -> str:
        """All tables, without times."""
        words = ["table", "--results", str(self.results), "--format", format, "--columns", "ece"]
        outcome = CliRunner().invoke(app, words)
        assert outcome.exit_code == 0, outcome.output
        return outcome.stdout

    def status(self) -> dict[str, Any]:
        """State and reason of every row, by method."""
        outcome = CliRunner().invoke(app, ["status", "--results", str(self.results), "--json"])
        return {row["method"]: row for row in json.loads(outcome.stdout)["cells"]}

    def files(self, pattern: str) -> list[Path]:
        """What the results folder holds, e.g. `records/*.jsonl`."""
        return sorted((self.results / "faults").glob(pattern))

    def records(self) -> set[str]:
        """Every record on disk; seconds and all, so that one that was computed again is another one."""
        return {line for path in self.files("records/*.jsonl") for line in path.read_text().splitlines()}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A benchmark in a folder of its own; whatever it has started is gone afterwards."""
    made = Bench(tmp_path)
    yield made
    for process in made.started:
        kill_session(process)


@pytest.fixture
def undisturbed(tmp_path: Path) -> Callable[[Bench], str]:
    """The tables of the same benchmark when nothing goes wrong."""

    def tables(disturbed: Bench) -> str:
        calm = Bench(tmp_path / "calm")
        calm.folder.mkdir()
        shutil.copy(disturbed.file, calm.file)
        outcome = calm.here("--engine", "local")
        assert outcome.returncode == 0, outcome.stderr
        return calm.tables()

    return tables


def listening(pids: Iterable[int]) -> set[str]:
    """The addresses, in the kernel's hexadecimal, on which these processes accept connections."""
    sockets = {
        os.readlink(link) for pid in pids for link in Path(f"/proc/{pid}/fd").glob("*") if link.is_symlink()
    }
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}
