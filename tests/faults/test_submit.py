"""`tta-bench submit` on a cluster of this machine: the run outlives the process that submitted it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.faults.conftest import Bench
from tools.loopback import RAY, Cluster, wait_for
from tta_bench.cli import app
from tta_bench.errors import UserError


@pytest.fixture
def cluster(plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pytest.importorskip("aiohttp_cors", reason="needs ray[default]")
    # As in an activated environment: a job is started by the `python` on the path.
    path = os.pathsep.join([str(RAY.parent), os.environ["PATH"]])
    made = Cluster(tmp_path_factory.mktemp("ray"), {"PYTHONPATH": "", "PATH": path}, dashboard=True)
    yield made
    made.stop()


@pytest.mark.slow
def test_a_submitted_run_ends_without_the_process_that_submitted_it(
    cluster: Cluster, bench: Bench, undisturbed: Callable[[Bench], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes have no plugins; `submit` sends them."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, cluster.environment[name])
    gate = bench.folder / "gate"
    bench.write([{"use": "drift", "at": 5, "gate": str(gate)}, "source"], run={"engine": "ray"})
    far = bench.folder / "far"
    host = cluster.dashboard.removeprefix("http://").split(":")
    wait_for(lambda: _answers(host[0], int(host[1])))
    submit = ["submit", str(bench.file), "--ray-address", cluster.dashboard, "--results", str(far)]
    command = [sys.executable, "-m", "tta_bench.cli", *submit]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert outcome.returncode == 0, outcome.stderr
    assert "faults runs as job tta-bench-faults-" in outcome.stdout
    again = CliRunner().invoke(app, submit)
    assert isinstance(again.exception, UserError)
    assert "is running it already" in str(again.exception)

    wait_for(lambda: list(far.glob("*/records/*drift*.jsonl")))
    shown = CliRunner().invoke(app, ["status", "--ray-address", cluster.dashboard, "--json"])
    assert shown.exit_code == 0, shown.exception
    assert {row["state"] for row in json.loads(shown.stdout)["cells"]} != {"done"}
    assert "running" in shown.stderr
    gate.touch()
    wait_for(lambda: not list(far.glob("*/lock")) or not (far / "faults/lock").read_text())
    fetch = ["fetch-results", "--ray-address", cluster.dashboard, "--results", str(bench.results)]
    assert CliRunner().invoke(app, fetch).exit_code == 0
    assert bench.tables() == undisturbed(bench)
    assert CliRunner().invoke(app, fetch).exit_code == 0, "a second time adds nothing"


def _answers(host: str, port: int) -> bool:
    import socket

    with socket.socket() as attempt:
        return attempt.connect_ex((host, port)) == 0


def test_a_dashboard_that_is_not_there_is_told_at_once(bench: Bench) -> None:
    bench.write(["source"])
    outcome = CliRunner().invoke(app, ["submit", str(bench.file), "--ray-address", "127.0.0.1:9"])
    assert "127.0.0.1:9: nobody answers" in str(outcome.exception)


def test_a_relative_folder_is_refused(bench: Bench) -> None:
    bench.write(["source"])
    outcome = CliRunner().invoke(
        app, ["submit", str(bench.file), "--ray-address", "127.0.0.1:9", "--results", "results"]
    )
    assert "--results results: not an absolute path" in str(outcome.exception)
