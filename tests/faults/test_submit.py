"""`tta-bench submit` on a cluster of this machine: the run outlives the process that submitted it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.faults.conftest import Bench
from tools.loopback import Cluster, kill_session, wait_for
from tta_bench.cli import app
from tta_bench.errors import UserError
from tta_bench.execution.ray import submission
from tta_bench.execution.ray.submission import ClusterJobs, Submission
from tta_bench.storage import workers
from tta_bench.storage.lock import Lock

COMMAND = (sys.executable, "-m", "tta_bench.cli")


@pytest.mark.slow
def test_a_submitted_run_ends_without_the_process_that_submitted_it(
    watched_cluster: Cluster,
    bench: Bench,
    undisturbed: Callable[[Bench], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The nodes have no plugins; `submit` sends them."""
    dashboard = watched_cluster.dashboard
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, watched_cluster.environment[name])
    gate = bench.folder / "gate"
    bench.write([{"use": "drift", "at": 5, "gate": str(gate)}, "source"], run={"engine": "ray"})
    far = bench.folder / "far"
    host = dashboard.removeprefix("http://").split(":")
    wait_for(lambda: _answers(host[0], int(host[1])))
    submit = ["submit", str(bench.file), "--ray-address", dashboard, "--results", str(far)]
    assert "faults runs as job tta-bench-faults-" in _first_line_of(submit)
    again = _run(submit)
    assert again.returncode == 2
    assert "is running it already" in again.stderr
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 32)
    stranger = _run(submit)
    assert stranger.returncode == 2
    assert "RAY_AUTH_TOKEN" in stranger.stderr
    monkeypatch.setenv("RAY_AUTH_TOKEN", watched_cluster.environment["RAY_AUTH_TOKEN"])

    wait_for(lambda: list(far.glob("*/records/*drift*.jsonl")))
    shown = _run(["status", "--ray-address", dashboard, "--json"])
    assert shown.returncode == 0, shown.stderr
    assert {row["state"] for row in json.loads(shown.stdout)["cells"]} != {"done"}
    assert "running" in shown.stderr
    gate.touch()
    wait_for(lambda: not list(far.glob("*/lock")) or not (far / "faults/lock").read_text())
    fetch = ["fetch-results", "--ray-address", dashboard, "--results", str(bench.results)]
    assert _run(fetch).returncode == 0
    assert bench.tables() == undisturbed(bench)
    assert _run(fetch).returncode == 0, "a second time adds nothing"


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own: Ray reads the token of a cluster once in a process."""
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120)


def _first_line_of(words: list[str]) -> str:
    """What a command prints first; then its process and all that it has started are killed."""
    with subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        kill_session(process)
        errors = process.stderr.read()
    assert line, errors
    assert not errors
    return line


def _answers(host: str, port: int) -> bool:
    import socket

    with socket.socket() as attempt:
        return attempt.connect_ex((host, port)) == 0


def test_a_dashboard_that_is_not_there_is_told_at_once(bench: Bench) -> None:
    bench.write(["source"])
    outcome = CliRunner().invoke(app, ["submit", str(bench.file), "--ray-address", "127.0.0.1:9"])
    assert "127.0.0.1:9: nobody answers" in str(outcome.exception)


def test_without_the_extra_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.dashboard.modules.job import sdk

    monkeypatch.setattr(submission, "check_address", lambda place: None)
    monkeypatch.setattr(sdk, "requests", None)  # as Ray leaves it without aiohttp
    with pytest.raises(
        UserError, match=r"(?s)head:8265: .*install tta-bench\[cluster\] here and on the head"
    ):
        ClusterJobs("http://head:8265")


def test_a_relative_folder_is_refused(bench: Bench) -> None:
    bench.write(["source"])
    outcome = CliRunner().invoke(
        app, ["submit", str(bench.file), "--ray-address", "127.0.0.1:9", "--results", "results"]
    )
    assert "--results results: not an absolute path" in str(outcome.exception)


def test_a_head_node_whose_agent_has_no_port_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "AGENT_SECONDS", 0.0)
    jobs = object.__new__(ClusterJobs)
    jobs.client = _Refusing("status code 500: No available agent to submit job, please try again later.")
    with pytest.raises(UserError, match="--dashboard-agent-listen-port=0"):
        jobs._submit(entrypoint="true")
    jobs.client = _Refusing("status code 400: no such thing")
    with pytest.raises(UserError, match="refuses the job: status code 400"):
        jobs._submit(entrypoint="true")


def test_the_packages_of_every_plugin_are_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenarios and corruptions may come from other packages, as methods do; `clean` is no plugin."""
    sent = set()

    class Jobs:
        def __init__(self, address: str) -> None: ...

        def submit(self, name: str, file: Path, results: str, options: object, plugins: object) -> Submission:
            sent.update(plugins)  # type: ignore[call-overload]
            return Submission("job", name, results, "PENDING")

    monkeypatch.setattr(submission, "ClusterJobs", Jobs)
    bench.write(["drift"], stream={"scenario": ["mixed", "gradual"], "corruptions": ["clean", "fog"]})
    outcome = CliRunner().invoke(app, ["submit", str(bench.file), "--ray-address", "http://head:8265"])
    assert outcome.exit_code == 0, outcome.exception
    assert sent == {
        ("data", "small-source"),
        ("models", "resnet-micro"),
        ("quantizers", "fp32"),
        ("methods", "drift"),
        ("streams", "mixed"),
        ("streams", "gradual"),
        ("corruptions", "fog"),
    }


@pytest.fixture
def jobs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Jobs of a cluster that runs every command at once in this process."""
    made: Any = object.__new__(ClusterJobs)
    made.address, made.client = "http://head:8265", _Client()

    def start(id: str, command: list[str], results: str, *_: object) -> None:
        outcome = CliRunner().invoke(app, [*command, "--results", results])
        state = "SUCCEEDED" if outcome.exception is None else "FAILED"
        made.client.jobs[id] = state, f"noise of Ray\n{outcome.output}{outcome.exception or ''}\nmore"

    monkeypatch.setattr(made, "_start", start)
    monkeypatch.setattr(submission, "ClusterJobs", lambda address: made)
    monkeypatch.setattr(submission, "POLL_SECONDS", 0.01)
    return made


def _status(*words: str) -> Result:
    return CliRunner().invoke(app, ["status", "--ray-address", "http://head:8265", *words])


def test_the_status_of_a_submitted_run_is_made_on_the_cluster(bench: Bench, jobs: Any) -> None:
    """Cells and workers, without the records; nothing of the job that asks stays."""
    bench.write(["source"])
    assert bench.here().returncode == 0
    jobs.client.add("tta-bench-faults-1", "RUNNING", str(bench.results), "")
    lock = Lock(bench.results / "faults" / "lock")
    row = {"node": "10.0.0.7", "device": "gpu", "work": "resnet-micro FP32 source", "since": time.time()}
    workers.write(bench.results / "faults", [row])
    shown, as_json = _status(), _status("--json")
    workers.write(bench.results / "faults", [])
    lock.release()
    assert shown.exit_code == as_json.exit_code == 0, shown.exception
    assert shown.stderr == "Job tta-bench-faults-1: running\n"
    assert "1 done" in shown.stdout
    assert "10.0.0.7" in shown.stdout
    assert "noise" not in shown.stdout
    data = json.loads(as_json.stdout)
    assert [cell["method"] for cell in data["cells"]] == ["source"]
    assert data["workers"] == [row]
    assert list(jobs.client.jobs) == ["tta-bench-faults-1"]


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "FAILED"])
def test_a_run_without_results_shows_its_state_and_its_log(bench: Bench, jobs: Any, state: str) -> None:
    log = "\n".join([*map(str, range(100)), "faults.yaml: methods[0]: unknown method"])
    jobs.client.add("tta-bench-faults-1", state, str(bench.results), log)
    outcome = _status()
    assert outcome.exit_code == 0, outcome.exception
    assert outcome.stderr.startswith(f"Job tta-bench-faults-1: {state.lower()}")
    assert outcome.stdout.startswith("The job has written no results. Its log ends with:\n81\n")
    assert outcome.stdout.endswith("unknown method\n")
    assert json.loads(_status("--json").stdout)["cells"] == []
    fetched = CliRunner().invoke(app, ["fetch-results", "--ray-address", "http://head:8265"])
    assert fetched.stderr.startswith("Job tta-bench-faults-1")
    assert "faults: no results here" in str(fetched.exception)


def test_a_head_that_is_lost_during_a_call_is_told(
    bench: Bench, jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise ConnectionError("Connection refused")

    for name in ("get_job_logs", "get_job_status", "list_jobs"):
        jobs.client.jobs.clear()
        jobs.client.add("tta-bench-faults-1", "RUNNING", str(bench.results), "")
        monkeypatch.setattr(jobs.client, name, lost)
        outcome = _status()
        assert isinstance(outcome.exception, UserError)
        assert "http://head:8265: the cluster does not answer: Connection refused" in str(outcome.exception)


def test_a_command_that_takes_too_long_is_removed(
    bench: Bench, jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "OUTPUT_SECONDS", 0.0)
    monkeypatch.setattr(jobs, "_start", lambda id, *_: jobs.client.jobs.update({id: ("RUNNING", "")}))
    with pytest.raises(UserError, match="could not run `tta-bench print-status`: it took over"):
        jobs.output(["print-status"], str(bench.results))
    assert not jobs.client.jobs


class _Client:
    """Ray's client of jobs."""

    def __init__(self) -> None:
        self.jobs: dict[str, tuple[str, str]] = {}  # state and log
        self.results = ""

    def add(self, id: str, state: str, results: str, log: str) -> None:
        self.jobs[id], self.results = (state, log), results

    def list_jobs(self) -> list[SimpleNamespace]:
        facts = {"tta-bench": "faults", "tta-bench-results": self.results}
        return [
            SimpleNamespace(metadata=facts, submission_id=id, start_time=1, status=state, message="it died")
            for id, (state, _) in self.jobs.items()
        ]

    def get_job_status(self, id: str) -> SimpleNamespace:
        return SimpleNamespace(value=self.jobs[id][0])

    def get_job_info(self, id: str) -> SimpleNamespace:
        return SimpleNamespace(message="")

    def get_job_logs(self, id: str) -> str:
        return self.jobs[id][1]

    def stop_job(self, id: str) -> None:
        self.jobs[id] = ("STOPPED", "")

    def delete_job(self, id: str) -> None:
        if self.jobs[id][0] == "RUNNING":
            raise RuntimeError("it is running")
        del self.jobs[id]


class _Refusing:
    """A client of a server that takes no job."""

    def __init__(self, why: str) -> None:
        self.why = why

    def submit_job(self, **_: str) -> None:
        raise RuntimeError(self.why)
