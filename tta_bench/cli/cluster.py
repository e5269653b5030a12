"""Commands on a cluster: submit a run, and fetch its results."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli import options
from tta_bench.cli.app import app
from tta_bench.cli.output import show, tell
from tta_bench.errors import UserError
from tta_bench.files import NAME, plain_name
from tta_bench.terminal import say

Dashboard = Annotated[
    str, typer.Option("--ray-address", help="address of the cluster's dashboard, e.g. http://head:8265")
]
HOME = "$HOME/tta-bench-results"  # the shell of the head node replaces $HOME


@app.command()
def submit(
    file: options.File,
    ray_address: Dashboard,
    results: Annotated[
        str, typer.Option("--results", help="folder for the results on the head node, an absolute path")
    ] = HOME,
    workers: options.Workers = None,
    device: options.Device = None,
    only: options.Only = None,
    limit: options.Limit = None,
    override: options.Override = None,
    micro: options.Micro = False,
    overwrite: options.Overwrite = "missing",
) -> None:
    """Run FILE on a cluster as a Ray job, which goes on when this machine is switched off.

    The same command continues a run that was stopped. Paths in FILE are those of the cluster's nodes.
    """
    from tta_bench import config
    from tta_bench.execution.ray.submission import ClusterJobs

    if not results.startswith(("/", "$HOME/")):
        raise UserError(f"--results {results}: not an absolute path. Give a folder of the head node.")
    benchmark = config.load(file, override or [])
    given = {"--workers": workers, "--device": device, "--limit": limit, "--overwrite": overwrite}
    words = [word for flag, value in given.items() if value is not None for word in (flag, str(value))]
    words += [word for text in only or [] for word in ("--only", text)]
    words += [word for text in override or [] for word in ("-o", text)] + ["--micro"] * micro
    jobs = ClusterJobs(ray_address)
    run = jobs.submit(benchmark.name, file, results, words, benchmark.plugins)
    say(
        f"{benchmark.name} runs as job {run.id}.\n"
        f"tta-bench status --ray-address {ray_address} --name {benchmark.name}\n"
        f"tta-bench fetch-results --ray-address {ray_address} --name {benchmark.name}"
    )


@app.command("fetch-results")
def fetch_results(
    ray_address: Dashboard,
    results: options.Results = Path("results"),
    name: Annotated[
        str | None, typer.Option("--name", help="benchmark; default: the one submitted last")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Copy the results of a submitted run from the cluster, finished or not, and merge them into ours."""
    from tta_bench.execution.ray.submission import ClusterJobs
    from tta_bench.storage import merge as merging

    jobs = ClusterJobs(ray_address)
    run = jobs.newest(name)
    tell(f"Job {run.id}: {run.told}")
    with tempfile.TemporaryDirectory(prefix="tta-bench-fetch-") as folder:
        jobs.fetch(run, Path(folder))
        show(merging.merge([Path(folder)], results, run.name), as_json)


@app.command("print-results", hidden=True)
def print_results(
    name: Annotated[str, typer.Option("--name", help="benchmark in the results folder")],
    results: options.Results = Path("results"),
) -> None:
    """Print a results folder as text; `fetch-results` runs this on the cluster."""
    from tta_bench.storage.archive import packed

    say(packed(results / plain_name(name, NAME, results, "a benchmark's name")))


@app.command("print-status", hidden=True)
def print_status(
    name: Annotated[str, typer.Option("--name", help="benchmark in the results folder")],
    results: options.Results = Path("results"),
) -> None:
    """Print the status of a results folder as text; `status --ray-address` runs this on the cluster."""
    from tta_bench.commands.results import results as read
    from tta_bench.storage.archive import encoded
    from tta_bench.storage.manifest import benchmarks

    found = read(results, name).status() if name in benchmarks(results) else None
    say(encoded(json.dumps(found and {"text": found.text, "data": found.data}).encode()))


def show_submitted(address: str, name: str | None, as_json: bool) -> None:
    """Print the state of the run that was submitted last, and the status of its results folder."""
    from tta_bench.execution.ray.submission import ClusterJobs

    jobs = ClusterJobs(address)
    run = jobs.newest(name)
    tell(f"Job {run.id}: {run.told}")
    show(jobs.status(run), as_json)
