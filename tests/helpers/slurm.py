"""`srun` and `scontrol` of a Slurm job whose two nodes are loopback addresses of this machine."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ray.scripts.scripts import start
from ray.scripts.symmetric_run import symmetric_run as original

from tools.loopback import HEAD, Cluster

NODES = 2
SESSIONS = "sessions"  # file with the process ids of the nodes, for whoever has to end them
REQUEUED = "requeued"  # file with the jobs that were put back into the queue
PROGRAMS = ("srun", "scontrol")


def srun(words: list[str]) -> int:
    """Run a command on the head node, or Ray and a command on all nodes."""
    command = list(itertools.dropwhile(lambda word: word.startswith("--"), words))
    if command == ["hostname", "--all-ip-addresses"]:
        print(HEAD, "10.0.0.1")  # a node often has several addresses
        return 0
    if command[:2] == ["ray", "symmetric-run"]:
        return symmetric_run(command[2:])
    return subprocess.run(command).returncode


def symmetric_run(words: list[str]) -> int:
    """Start the nodes, run the command, and stop the nodes.

    Ray's own program accepts no loopback addresses, and its end stops every Ray of the machine.
    """
    end = words.index("--")
    options = dict(zip(words[:end:2], words[1:end:2], strict=True))
    known = {name for command in (original, start) for each in command.params for name in each.opts}
    assert options.keys() <= known
    assert options["--num-cpus"] == os.environ["SLURM_CPUS_PER_TASK"] == "1", "as the nodes below have"
    assert options["--min-nodes"] == str(NODES)
    token = {name: os.environ[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # a short path: Ray's sockets are in it
        cluster = Cluster(Path(folder), token, address=options["--address"])
        try:
            Path(SESSIONS).write_text(f"{cluster.head.pid} {cluster.other.pid}")
            code = subprocess.run(words[end + 1 :], env=cluster.environment).returncode
        finally:
            cluster.stop()
    return code if code >= 0 else 128 - code


def scontrol(words: list[str]) -> int:
    """Names of the nodes, or a note that the job was put back into the queue."""
    if words[:2] == ["show", "hostnames"]:
        print("node1\nnode2")
        return 0
    assert words[0] == "requeue"
    with open(REQUEUED, "a") as file:
        print(*words[1:], file=file)
    return 0


if __name__ == "__main__":
    sys.exit({"srun": srun, "scontrol": scontrol}[sys.argv[1]](sys.argv[2:]))
