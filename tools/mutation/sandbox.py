"""A copy of the working tree, in which the tests of a mutant run in a forked process with a time limit.

A fork of a process that has imported torch and the like starts in milliseconds. The process that forks never
imports the project itself: a mutant is written to the copy first, and every module of the child imports it.
"""

from __future__ import annotations

import compileall
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mutation.session import Chosen, LineTrace
from mutation.targets import LEFT_OUT

ROOT = Path(__file__).parents[2]
# Import names, and the folders in which the packages are.
PACKAGES = {"tta_bench": "tta_bench", "tta_bench_methods": "methods", "tta_bench_quantizers": "quantizers"}
# The tests of a mutant may take as long as they do on the original, times this, plus these seconds.
PATIENCE, GRACE_SECONDS = 3.0, 10.0
MEMORY_BYTES = 6 << 30  # a loop that never ends may also fill a list


@dataclass(frozen=True)
class TestRun:
    """Which tests to run; `traced` is the file whose executed lines are wanted."""

    __test__ = False  # pytest collects what is called Test…

    files: Sequence[str]
    tests: Sequence[str] | None = None
    traced: str | None = None


@dataclass
class StartedTests:
    """A forked process, and where it writes what it found."""

    pid: int
    answer: Path
    started: float
    wall_seconds: float


class Sandbox:
    """One copy of the tree; runs one process at a time."""

    def __init__(self, folder: Path, root: Path = ROOT, commit: str | None = None) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self._count = 0
        self.tree.mkdir(parents=True)
        if commit is None:
            _copy_working_tree(root, self.tree)
        else:
            archive = _git(root, "archive", "--format=tar", commit)
            with tarfile.open(fileobj=io.BytesIO(archive)) as members:
                members.extractall(self.tree, filter="data")
        for name, source in PACKAGES.items():
            if name != source:
                (self.tree / name).symlink_to(source)
            compileall.compile_dir(self.tree / source, quiet=2)

    def read(self, path: str) -> str:
        """The source of a module; the original, as long as no mutant is written."""
        return (self.tree / path).read_text("utf-8")

    def write(self, path: str, source: str) -> None:
        """Put a mutant in the place of the original, of which no compiled code may stay."""
        (self.tree / path).write_text(source, "utf-8")
        for compiled in (self.tree / path).parent.glob(f"__pycache__/{Path(path).stem}.*"):
            compiled.unlink()

    def start(self, run: TestRun, cpu_seconds: float, wall_seconds: float) -> StartedTests:
        """Fork a process that runs the tests."""
        if any(name in sys.modules for name in PACKAGES):
            raise RuntimeError("the project is imported already, so that a mutant would have no effect")
        self._count += 1
        answer = self.folder / f"run{self._count}.json"
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                self._enter(cpu_seconds, answer.with_suffix(".log"))
                code = _run_tests(run, self.tree, answer)
            finally:
                os._exit(code)
        return StartedTests(pid, answer, time.monotonic(), wall_seconds)

    def _enter(self, cpu_seconds: float, log: Path) -> None:
        """Become a process of its own in the copy: output, limits, path."""
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for stream, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
            os.dup2(os.open(os.devnull if stream == 0 else log, mode | os.O_CREAT | os.O_APPEND), stream)
        limit = int(cpu_seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        os.chdir(self.tree)
        sys.path.insert(0, str(self.tree))
        os.environ["PYTHONPATH"] = str(self.tree)


def source_of(path: str, commit: str | None) -> str:
    """A module as it is in the working tree or in a commit."""
    content = (ROOT / path).read_bytes() if commit is None else _git(ROOT, "show", f"{commit}:{path}")
    return content.decode("utf-8")


def _git(root: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True).stdout


def _copy_working_tree(root: Path, target: Path) -> None:
    """Copy what is or would be committed."""
    names = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").decode()
    for name in filter(None, names.split("\0")):
        if (root / name).is_file():  # git also lists what is deleted and not yet committed
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, target / name)


def _run_tests(run: TestRun, tree: Path, answer: Path) -> int:
    """The exit code of pytest; the rest is in the answer."""
    chosen = Chosen(run.tests)
    trace = LineTrace(tree / run.traced) if run.traced else None
    sys.dont_write_bytecode = trace is None
    os.environ["PYTHONDONTWRITEBYTECODE"] = "" if trace else "1"
    base = answer.with_suffix(".tmp")
    flags = ["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--basetemp={base}"]
    flags += [f"--deselect={test}" for test in LEFT_OUT]
    if trace:
        trace.start()
    code = int(pytest.main([*flags, *run.files], plugins=[chosen, *([trace] if trace else [])]))
    sys.settrace(None)
    found: dict[str, Any] = {"failed": chosen.failed, "seconds": chosen.seconds}
    if trace:
        found["lines"] = {test: sorted(lines) for test, lines in trace.lines.items()}
        found["modules"] = [name for name, module in sys.modules.items() if _is_installed(module)]
    answer.write_text(json.dumps(found))
    shutil.rmtree(base, ignore_errors=True)
    return code


def _is_installed(module: ModuleType) -> bool:
    """Whether a module comes with Python or from an installed package, not from the tree."""
    path = getattr(module, "__file__", None) or ""
    return path.startswith((sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")))


def finished(running: StartedTests) -> tuple[str, dict[str, Any]] | None:
    """`passed`, `failed` or `timeout` and what the process found, or None while it runs."""
    pid, state, usage = os.wait4(running.pid, os.WNOHANG)
    late = time.monotonic() - running.started > running.wall_seconds
    if pid == 0 and not late:
        return None
    end_group(running)
    if pid == 0:
        os.waitpid(running.pid, 0)
        return "timeout", {}
    text = running.answer.read_text() if running.answer.exists() else ""
    answer: dict[str, Any] = json.loads(text) if text else {}
    answer["cpu"] = usage.ru_utime + usage.ru_stime
    answer["log"] = running.answer.with_suffix(".log").read_text(errors="replace")
    for path in running.answer.parent.glob(f"{running.answer.stem}.*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if os.WIFSIGNALED(state):
        return ("timeout" if os.WTERMSIG(state) == signal.SIGXCPU else "failed"), answer
    return ("passed" if os.WEXITSTATUS(state) == 0 else "failed"), answer


def end_group(running: StartedTests) -> None:
    """End the process and all that it has started and not ended."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def wait(running: StartedTests) -> tuple[str, dict[str, Any]]:
    """What a process found, once it has ended."""
    while (found := finished(running)) is None:
        time.sleep(0.02)
    return found
