"""Runs on a cluster without this machine: the driver is a Ray job, and its records are fetched later."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tta_bench.description import Description
from tta_bench.errors import UserError
from tta_bench.execution.ray import packages
from tta_bench.execution.ray.connection import QUIET, check_address
from tta_bench.execution.ray.environment import temporary_environment
from tta_bench.files import NAME as PLAIN
from tta_bench.files import plain_name
from tta_bench.storage import archive

NAME, RESULTS = "tta-bench", "tta-bench-results"  # keys of a job's metadata
PORT = 8265  # of Ray's dashboard, unless the address has one
POLL_SECONDS = 1.0
OUTPUT_SECONDS = 600.0  # for a command on the head node
STOP_SECONDS = 10.0  # for a command that has not ended by then
TAIL_LINES = 20  # of the log of a run without results
AGENT_SECONDS = 60.0  # for the agent of a cluster that has just started
UPLOADS = ("ray", "ray.dashboard.modules.dashboard_sdk")  # loggers that report every upload
NO_AGENT = "No available agent"  # in the answer of Ray's server
# The HTTP server of the head node's agent starts jobs. By default all agents of a machine want the same port.
NO_AGENT_REMEDY = (
    f"The head node has started no job for {AGENT_SECONDS:.0f} s. If another Ray runs on its machine, that "
    "one has the port of the agent (52365): start the head node with --dashboard-agent-listen-port=0."
)
OVER = ("STOPPED", "SUCCEEDED", "FAILED")


@dataclass(frozen=True)
class Submission:
    """A run that is a job of a cluster."""

    id: str
    name: str  # of the benchmark
    results: str  # folder on the head node
    state: str  # PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED
    message: str = ""

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state in OVER

    @property
    def told(self) -> str:
        """How the job is, in words."""
        if self.state == "FAILED":
            why = self.message.strip().partition("\n")[0].partition(", last available logs")[0].rstrip(".")
            return f"failed: {why or 'Ray gives no reason'}. The same `tta-bench submit` continues the run."
        return self.state.lower()


class ClusterJobs:
    """The jobs of one cluster."""

    def __init__(self, address: str) -> None:
        self.address = address
        place = address.removeprefix("http://")
        place = place if ":" in place else f"{place}:{PORT}"
        check_address(place)
        with temporary_environment(QUIET):
            try:
                from ray.exceptions import RayError
                from ray.job_submission import JobSubmissionClient

                for name in UPLOADS:
                    logging.getLogger(name).setLevel(logging.ERROR)
                self.client = JobSubmissionClient(address if "://" in address else f"http://{place}")
            except (ImportError, RuntimeError, ConnectionError) as error:
                raise UserError(
                    f"--ray-address {address}: jobs cannot be submitted: {str(error).splitlines()[0]} Give "
                    f"the address of the dashboard (port {PORT}), and install tta-bench[cluster] here and on "
                    "the head node."
                ) from error
            except RayError as error:
                why = str(error).splitlines()[0].rstrip(".")
                raise UserError(
                    f"--ray-address {address}: {why}. Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as on the "
                    "head node."
                ) from error

    def runs(self, name: str | None = None) -> list[Submission]:
        """The runs of a benchmark, or of all, that this cluster knows; the newest first."""
        with self._asking():
            jobs = self.client.list_jobs()
        found = [job for job in jobs if NAME in (job.metadata or {}) and job.submission_id]
        found.sort(key=lambda job: job.start_time or 0, reverse=True)
        runs = [_submission(job) for job in found]
        return [run for run in runs if name in (None, run.name)]

    def newest(self, name: str | None) -> Submission:
        """The newest run; an error if there is none."""
        found = self.runs(name)
        if not found:
            what = f'the benchmark "{name}"' if name else "tta-bench"
            raise UserError(f"The cluster has no run of {what}. Start one with `tta-bench submit FILE`.")
        return found[0]

    def submit(
        self,
        name: str,
        file: Path,
        results: str,
        options: Sequence[str],
        plugins: Collection[tuple[str, str]],
    ) -> Submission:
        """Start a run of a benchmark file in the cluster."""
        running = next((run for run in self.runs(name) if not run.over), None)
        if running is not None:
            raise UserError(
                f"{name}: job {running.id} is running it already. `tta-bench status --ray-address` shows "
                "how far it is."
            )
        command = ["run", file.name, "--engine", "ray", "--ray-address", "auto", *options]
        id = f"tta-bench-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        self._start(id, command, results, [file], plugins, {NAME: name, RESULTS: results})
        return Submission(id, name, results, "PENDING")

    def status(self, run: Submission) -> Description:
        """What `tta-bench status` shows on the head node; the end of the run's log if it has no results."""
        if run.state != "PENDING":
            text = self.output(["print-status", "--name", run.name], run.results)
            found = json.loads(archive.decoded(text))
            if found is not None:
                return Description(str(found["text"]), found["data"])
        with self._asking():
            log = self.client.get_job_logs(run.id)
        tail = "\n".join(log.strip().splitlines()[-TAIL_LINES:])
        told = "The job has written no results" + (
            f". Its log ends with:\n{tail}" if tail else ", and no log."
        )
        return Description(told, {"folder": run.results, "states": {}, "cells": [], "log": tail})

    def fetch(self, run: Submission, into: Path) -> None:
        """Copy the results of a run into a folder."""
        name = plain_name(run.name, PLAIN, Path(run.results), "a benchmark's name")
        archive.unpack(self.output(["print-results", "--name", name], run.results), into / name)

    def output(self, command: Sequence[str], results: str) -> str:
        """What a command of tta-bench prints on the head node."""
        id = f"tta-bench-{command[0]}-{os.getpid()}-{time.time_ns()}"
        self._start(id, command, results, [], [], {})
        try:
            with self._asking():
                state = self._wait(id, OUTPUT_SECONDS)
                text: str = self.client.get_job_logs(id)
                if state != "SUCCEEDED":
                    info = self.client.get_job_info(id).message or f"it took over {OUTPUT_SECONDS:.0f} s"
                    raise UserError(
                        f"The cluster could not run `tta-bench {command[0]}`: {info}\n{text[-2000:]}"
                    )
        finally:
            self._discard(id)
        return text

    def _wait(self, id: str, seconds: float) -> str:
        """The state of a job once it has ended, or after so many seconds."""
        end = time.monotonic() + seconds
        while True:
            state = str(self.client.get_job_status(id).value)
            if state in OVER or time.monotonic() > end:
                return state
            time.sleep(POLL_SECONDS)

    def _discard(self, id: str) -> None:
        """Remove a job from the cluster's list, and stop it first if it is still running."""
        with suppress(RuntimeError, OSError):
            if self.client.get_job_status(id).value not in OVER:
                self.client.stop_job(id)
                self._wait(id, STOP_SECONDS)
            self.client.delete_job(id)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn what the client raises when the head node is lost into an error with a remedy."""
        try:
            yield
        except (RuntimeError, OSError) as error:  # Ray has no class for what its server answers
            why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            raise UserError(
                f"--ray-address {self.address}: the cluster does not answer: {why}. Run the command again. "
                "If the head node is lost, start a cluster; then `tta-bench submit` continues the run."
            ) from error

    def _start(
        self,
        id: str,
        command: Sequence[str],
        results: str,
        files: Sequence[Path],
        plugins: Collection[tuple[str, str]],
        metadata: dict[str, str],
    ) -> None:
        """Send packages and files to the cluster, and start a command of tta-bench there."""
        with tempfile.TemporaryDirectory(prefix="tta-bench-submit-") as work:
            for file in files:
                shutil.copy(file, work)
            packages.copied(plugins, Path(work))  # Python finds packages in the working directory first
            # The shell of the head node replaces $HOME, which is unknown here.
            folder = f'"{results}"' if results.startswith("$HOME/") else shlex.quote(results)
            entry = f"python -m tta_bench.cli {shlex.join(command)} --results {folder}"
            self._submit(
                entrypoint=entry, submission_id=id, runtime_env={"working_dir": work}, metadata=metadata
            )

    def _submit(self, **job: Any) -> None:
        """Submit a job; a cluster that has just started has no agent yet that takes it."""
        end = time.monotonic() + AGENT_SECONDS
        while True:
            try:
                self.client.submit_job(**job)
                return
            except (RuntimeError, OSError) as error:  # Ray has no class for what its server answers
                if NO_AGENT not in str(error):
                    problem = f"The cluster refuses the job: {str(error).splitlines()[0]}"
                    raise UserError(problem) from error
                if time.monotonic() > end:
                    raise UserError(NO_AGENT_REMEDY) from error
            time.sleep(POLL_SECONDS)


def _submission(job: Any) -> Submission:
    facts = job.metadata
    state = str(getattr(job.status, "value", job.status))
    return Submission(job.submission_id, facts[NAME], facts.get(RESULTS, ""), state, job.message or "")
