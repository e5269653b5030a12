"""A real cluster of two nodes, each a `ray start` with a loopback address of its own."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import Bench, kill_session, processes, wait_for

RAY = Path(sys.executable).parent / "ray"
HEAD, OTHER = "127.0.0.2", "127.0.0.3"


def free_port() -> int:
    """A port that nobody listens on, below those that Ray gives to workers by itself."""
    for port in range(7100, 9900):
        with socket.socket() as attempt:
            if attempt.connect_ex((HEAD, port)):
                return port
    raise AssertionError("no free port")


class Cluster:
    """Two nodes with one core each."""

    def __init__(self, folder: Path) -> None:
        self.address = f"{HEAD}:{free_port()}"
        common = ("--block", "--num-cpus=1", "--disable-usage-stats", "--object-store-memory=100000000")
        port = self.address.rpartition(":")[2]
        head = ("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}")
        self.nodes = [self._start(HEAD, *common, *head)]
        wait_for(lambda: socket.socket().connect_ex((HEAD, int(port))) == 0)
        self.nodes.append(self._start(OTHER, *common, f"--address={self.address}"))

    def _start(self, ip: str, *flags: str) -> subprocess.Popen[bytes]:
        command = [str(RAY), "start", f"--node-ip-address={ip}", *flags]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)


@pytest.fixture
def cluster(
    plugins: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(16))
    made = Cluster(tmp_path_factory.mktemp("ray"))
    yield made
    for node in made.nodes:
        kill_session(node)


def test_a_lost_node_costs_nothing_but_time(
    cluster: Cluster, bench: Bench, undisturbed: Callable[[Bench], str]
) -> None:
    slow = [{"use": "drift", "name": f"drift {i}", "pause": 0.2 + i / 1000} for i in range(3)]
    bench.write([*slow, "source", "t3a"], run={"engine": "ray"})
    process = bench.start("--ray-address", cluster.address)
    wait_for(lambda: bench.files("checkpoints/*.drift.*"))
    wait_for(lambda: "ray::Worker.run" in processes(cluster.nodes[1].pid).values())
    seen = bench.records()
    kill_session(cluster.nodes[1])
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert seen <= bench.records()
    assert bench.tables() == undisturbed(bench)
