"""`tta-bench doctor`: check whether this machine can run benchmarks, and how to fix what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tta_bench.cache import entries
from tta_bench.checks.finding import NOTE, OK, PROBLEM, Finding
from tta_bench.checks.torch_build import torch_build, torchvision_fits
from tta_bench.data import location
from tta_bench.description import Description
from tta_bench.plugins import registry

GIB = 2**30
LEAST_FREE_BYTES = GIB  # with less, a run is likely to stop half-way
AMPLE_FREE_BYTES = 10 * GIB  # a cache of all corruptions of 10 000 images of 32 pixels takes 3 GiB
RAY_SECONDS = 60


def examine(results: Path, start_ray: bool) -> list[Finding]:
    """All checks of this machine; Ray is started only on request, because that takes seconds."""
    findings = [*python(), *packages(), *torch_build(), *torchvision_fits(), *plugins()]
    findings += [*processors(), *devices(), *data()]
    findings += [
        *folder("cache", entries.folder(), "$TTA_BENCH_CACHE"),
        *folder("results", results, "--results"),
    ]
    findings += [*ray_starts()] if start_ray else []
    return [*findings, *compiler(), *latex()]


def describe(findings: Sequence[Finding]) -> Description:
    """The findings as lines with a verdict, and as data."""
    lines = []
    for each in findings:
        lines.append(f"{each.state:<9}{each.what}: {each.found}")
        lines += [f"{'':9}→ {each.remedy}"] if each.remedy else []
    problems = sum(finding.state == PROBLEM for finding in findings)
    verdict = f"Not usable: {problems} to fix." if problems else "Usable."
    data = {"usable": not problems, "findings": [asdict(finding) for finding in findings]}
    return Description("\n".join([*lines, "", verdict]), data)


# -- software ----------------------------------------------------------------------------------------


def python() -> Iterator[Finding]:
    """Whether the package supports this version of Python."""
    wanted, here = distribution("tta-bench").metadata["Requires-Python"], platform.python_version()
    fits = SpecifierSet(wanted).contains(here, prereleases=True)
    remedy = "" if fits else f"Make an environment with Python {wanted}."
    yield Finding("Python", OK if fits else PROBLEM, f"{here}, {platform.machine()}", remedy)


def packages() -> Iterator[Finding]:
    """Dependencies that are missing or have an unsupported version."""
    requirements = [Requirement(text) for text in distribution("tta-bench").requires or []]
    needed = [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    here = {r.name: installed(r.name) for r in needed}
    fits = [r for r in needed if here[r.name] and r.specifier.contains(here[r.name], prereleases=True)]
    wrong = [r for r in needed if r not in fits]
    for requirement in wrong:
        found = here[requirement.name] or "not installed"
        yield Finding(f"package {requirement.name}", PROBLEM, found, f'pip install "{requirement}"')
    if not wrong:
        named = ("tta-bench", "torch", "timm", "numpy", "ray", "onnxruntime")  # the last is an extra
        shown = ", ".join(f"{name} {installed(name)}" for name in named if installed(name))
        yield Finding("packages", OK, f"{len(needed)} as required: {shown}")


def installed(package: str) -> str:
    """The version of a package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def plugins() -> Iterator[Finding]:
    """Plugins that cannot be imported; a broken third-party plugin breaks only its own cells."""
    count = 0
    for group in registry.LISTED:
        for name in registry.names(group):
            count += 1
            try:
                registry.load(group, name)
            except registry.UnknownPlugin as error:
                ours = registry.origin(group, name).startswith("tta-bench ")
                yield Finding(f"{group}/{name}", PROBLEM if ours else NOTE, "broken", str(error))
    yield Finding("plugins", OK, f"{count} registered; `tta-bench list` names them")


def compiler() -> Iterator[Finding]:
    """A C++ compiler, which only torch.compile needs."""
    yield _tool("compiler", ("c++", "g++", "clang++"), "Only torch.compile needs one: install g++ for that.")


def latex() -> Iterator[Finding]:
    """pdflatex, to typeset LaTeX tables."""
    remedy = "LaTeX tables can be written without it; install texlive to typeset them."
    yield _tool("pdflatex", ("pdflatex",), remedy)


def _tool(what: str, commands: tuple[str, ...], remedy: str) -> Finding:
    found = next(filter(None, map(shutil.which, commands)), None)
    return Finding(what, OK, found) if found else Finding(what, NOTE, "none", remedy)


# -- hardware ----------------------------------------------------------------------------------------


def processors() -> Iterator[Finding]:
    """Cores that this process may use, and how busy they are."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0]
    found = f"{usable} usable of {os.cpu_count()}, load {load:.1f}; a run starts a worker for each"
    busy = load > usable + 0.5
    remedy = (
        "They are busy, which lengthens measured times but changes no accuracy. Wait, or use fewer --workers."
    )
    yield Finding("CPU", NOTE if busy else OK, found, remedy if busy else "")


def devices() -> Iterator[Finding]:
    """The GPUs that torch can use."""
    import torch

    threads = f"torch {torch.__version__} with {torch.get_num_threads()} of its threads (runs: run.threads)"
    if not torch.cuda.is_available():
        remedy = "No action needed, unless there is a GPU: then install a build of torch for it."
        yield Finding("devices", OK if torch.version.cuda is None else NOTE, f"CPU only; {threads}", remedy)
        return
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        yield Finding(f"cuda:{index}", OK, f"{facts.name}, {facts.total_memory / GIB:.1f} GiB; {threads}")


def folder(what: str, path: Path, setting: str) -> Iterator[Finding]:
    """Whether a folder can be written, and the free disk space."""
    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        remedy = f"Set {setting} to a folder that you can write to."
        yield Finding(what, PROBLEM, f"{path}: cannot be written: {error.strerror}", remedy)
        return
    free = shutil.disk_usage(there).free
    state = PROBLEM if free < LEAST_FREE_BYTES else NOTE if free < AMPLE_FREE_BYTES else OK
    remedy = "" if state == OK else f"Free some space, or set {setting} to a folder on a larger disk."
    yield Finding(what, state, f"{path}: writable, {free / GIB:.1f} GiB free", remedy)


# -- data and Ray ------------------------------------------------------------------------------------


def data() -> Iterator[Finding]:
    """The folder of data sets, and which sets are ready."""
    missing = {name: _missing(name) for name in registry.names("data")}
    base = os.environ.get(location.VARIABLE)
    if base is None:
        ready = ", ".join(name for name, problem in missing.items() if not problem)
        remedy = f"For other sets, set ${location.VARIABLE} to the folder that holds imagenet, cifar10-c, …"
        yield Finding("data", NOTE, f"ready: {ready}", remedy)
        return
    if not Path(base).expanduser().is_dir():
        remedy = "Set it to an existing folder, or unset it."
        yield Finding(f"${location.VARIABLE}", PROBLEM, f"{base}: no such folder", remedy)
    for name, problem in missing.items():
        yield Finding(f"data {name}", NOTE if problem else OK, "not here" if problem else "ready", problem)


def _missing(name: str) -> str:
    """Why a data set cannot be read; empty if it can."""
    try:
        return next(iter(registry.load("data", name)().problems([])), "")
    except Exception as error:  # a plugin can fail in any way; `tta-bench check` shows how
        return f"{type(error).__name__}: {error}. `tta-bench check data/{name}` says more."


def ray_starts() -> Iterator[Finding]:
    """Start Ray on this machine, and run a task that imports what workers need."""
    from tta_bench.execution.ray.connection import LOOPBACK, QUIET
    from tta_bench.execution.ray.environment import temporary_environment

    with temporary_environment(QUIET | LOOPBACK):
        yield _ray_answers()


def _ray_answers() -> Finding:
    import ray

    begun = time.monotonic()
    options: dict[str, Any] = dict(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ask: Callable[..., Any] = ray.remote(_answer).remote
    try:
        ray.init(address="local", num_cpus=1, **options)
        answer = ray.get(ask(), timeout=RAY_SECONDS)
    except Exception as error:  # Ray raises its own, ConnectionError, RuntimeError, …
        remedy = "Run with --engine local; or give Ray a short, writable $RAY_TMPDIR and free memory."
        return Finding("Ray", PROBLEM, f"does not start: {error}", remedy)
    finally:
        ray.shutdown()
    return Finding("Ray", OK, f"{answer} after {time.monotonic() - begun:.0f} s")


def _answer() -> str:
    """The answer of a worker that could import what it needs."""
    from tta_bench.execution.executor import Executor

    return f"a worker has {Executor.__name__} and answers"
