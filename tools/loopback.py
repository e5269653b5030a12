"""A Ray cluster of two nodes on this machine, runs of a benchmark on it, and functions to kill processes."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

RAY = Path(sys.executable).parent / "ray"
HEAD, OTHER, THIRD = "127.0.0.2", "127.0.0.3", "127.0.0.4"
QUIET = subprocess.DEVNULL
DASHBOARD = 1000  # the port of the dashboard minus that of the cluster
# By default the agents of all nodes listen on port 52365 of 127.0.0.1. All but the first one then work
# without their HTTP server, and a head node without it starts no jobs.
ANY_AGENT_PORT = "--dashboard-agent-listen-port=0"


class Cluster:
    """Two nodes with one core each: two `ray start` processes with their own loopback address and session."""

    def __init__(
        self, folder: Path, settings: dict[str, str] | None = None, dashboard: bool = False, address: str = ""
    ) -> None:
        self.folder, self.address = folder, address or f"{HEAD}:{_free_port()}"
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
        priority = {"RAY_worker_niceness": "0"}  # by default all other processes come first
        self.environment = os.environ | token | priority | (settings or {})
        port = self.address.rpartition(":")[2]
        self.dashboard = f"http://{HEAD}:{int(port) + DASHBOARD}"
        shown = (f"--dashboard-host={HEAD}", f"--dashboard-port={int(port) + DASHBOARD}")
        head = ("--head", f"--port={port}", f"--include-dashboard={dashboard}", f"--temp-dir={folder}")
        self.head = self._start(HEAD, *head, *(shown if dashboard else ()))
        wait_for(lambda: socket.socket().connect_ex((HEAD, int(port))) == 0)
        self.more: list[subprocess.Popen[bytes]] = []
        self.restart_other()

    def restart_other(self) -> None:
        """Start a new second node after the old one was killed."""
        self.other = self.join(OTHER)

    def join(self, ip: str, **settings: str) -> subprocess.Popen[bytes]:
        """Start another node with an environment of its own."""
        node = self._start(ip, f"--address={self.address}", **settings)
        self.more.append(node)
        return node

    def workers(self) -> list[int]:
        """The processes that run cells, on both nodes."""
        found = processes(self.head.pid) | processes(self.other.pid)
        return [pid for pid, command in found.items() if command.startswith("ray::Worker")]

    def stop(self) -> None:
        """Kill all nodes."""
        for node in (*self.more, self.head):
            kill_session(node)

    def _start(self, ip: str, *flags: str, **settings: str) -> subprocess.Popen[bytes]:
        """Start a node, and wait until it has chosen names for its sockets: two at once choose the same."""
        common = ("--block", "--num-cpus=1", "--disable-usage-stats", "--object-store-memory=100000000")
        command = [str(RAY), "start", f"--node-ip-address={ip}", *common, ANY_AGENT_PORT, *flags]
        node = subprocess.Popen(
            command, stdout=QUIET, stderr=QUIET, start_new_session=True, env=self.environment | settings
        )
        wait_for(lambda: node.poll() is not None or any(map(_is_raylet, processes(node.pid).values())))
        return node


class Run:
    """A benchmark file and one results folder for it, on a cluster."""

    def __init__(self, file: Path, results: Path, cluster: Cluster) -> None:
        self.file, self.results, self.cluster = file, results, cluster

    def start(self, log: Path, *flags: str) -> subprocess.Popen[bytes]:
        """Start `tta-bench run` on the cluster, in its own session; its output goes to a file."""
        place = ("--engine", "ray", "--ray-address", self.cluster.address)
        words = ["run", str(self.file), "--results", str(self.results), *place, *flags]
        with open(log, "ab") as output:
            return subprocess.Popen(
                self._command(words),
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=self.cluster.environment,
            )

    def records(self) -> set[bytes]:
        """All result lines on disk. They include run times, so a record computed again differs."""
        found: set[bytes] = set()
        for path in self.results.glob("*/records/*.jsonl"):
            with suppress(FileNotFoundError):  # the file is being replaced
                found.update(line for line in path.read_bytes().split(b"\n") if b'"status":"ok"' in line)
        return found

    def checkpointed(self) -> float:
        """When a checkpoint was last written, by the times of files."""
        times = [0.0]
        for path in self.results.glob("*/checkpoints/*.checkpoint"):
            with suppress(FileNotFoundError):
                times.append(path.stat().st_mtime)
        return max(times)

    def tables(self) -> bytes:
        """All tables without times, as CSV."""
        words = ["table", "--results", str(self.results), "--format", "csv", "--columns", "ece"]
        return subprocess.run(self._command(words), check=True, capture_output=True).stdout

    def _command(self, words: Iterable[str]) -> list[str]:
        return [sys.executable, "-m", "tta_bench.cli", *words]


def wait_for(what: Callable[[], Any], seconds: float = 120.0) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise TimeoutError(f"it did not happen within {seconds:.0f} s")
        time.sleep(0.05)


def processes(session: int) -> dict[int, str]:
    """The command lines of a session's running processes, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ").strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def kill_session(process: subprocess.Popen[Any]) -> None:
    """Kill a process and everything it has started."""
    for pid in processes(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _is_raylet(command: str) -> bool:
    """Whether this is the process that manages a node."""
    return command.partition(" ")[0].endswith("/raylet")


def is_free(port: int) -> bool:
    """Whether a process may listen at this port of the head node."""
    with socket.socket() as attempt:
        try:
            attempt.bind((HEAD, port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    """A port that is free like the one of its dashboard, below the ports that Ray gives to workers."""
    for port in range(7100, 8900):
        if is_free(port) and is_free(port + DASHBOARD):
            return port
    raise OSError("no free port")
