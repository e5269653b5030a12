"""One module and its mutants → a verdict on each."""

from __future__ import annotations

import gc
import importlib
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mutation.generate import Mutant, unchanged
from mutation.report import Verdict, verdict
from mutation.sandbox import (
    GRACE_SECONDS,
    PATIENCE,
    Sandbox,
    StartedTests,
    TestRun,
    end_group,
    finished,
    wait,
)
from mutation.session import AT_IMPORT

SLOW_SECONDS = 1.0  # of processor time; longer tests are left out, as they would run for every survivor
WALL = 4  # the share of a core that a process gets on a busy machine, inverse


@dataclass(frozen=True)
class Baseline:
    """What the tests of a module do on the original."""

    files: tuple[str, ...]
    lines: dict[str, set[int]]  # by test
    seconds: dict[str, float]  # by test, of those that run on mutants
    cpu_seconds: float

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that execute the mutated statement, the shortest first."""
        hit = {test for test, lines in self.lines.items() if lines.intersection(mutant.lines)}
        chosen = set(self.seconds) if AT_IMPORT in hit else hit
        return sorted(chosen.intersection(self.seconds), key=lambda test: self.seconds[test])

    def limit(self) -> float:
        """Processor seconds that the tests of a mutant may take."""
        return PATIENCE * self.cpu_seconds + GRACE_SECONDS


def baseline(sandbox: Sandbox, path: str, files: Sequence[str]) -> Baseline:
    """Run the tests on the original twice: traced, and then timed as mutants are."""
    original = sandbox.read(path)
    traced = _passing(sandbox, TestRun(files, traced=path))
    _warm(traced["modules"])
    sandbox.write(path, unchanged(original))
    timed = _passing(sandbox, TestRun(files))
    sandbox.write(path, original)
    lines = {test: set(found) for test, found in traced["lines"].items()}
    seconds = {test: taken for test, taken in timed["seconds"].items() if taken <= SLOW_SECONDS}
    return Baseline(tuple(files), lines, seconds, timed["cpu"])


def verdicts(
    sandboxes: Sequence[Sandbox], base: Baseline, mutants: Sequence[Mutant], report: Callable[[Verdict], None]
) -> None:
    """Run the tests on every mutant, as many at a time as there are sandboxes, and report each verdict.

    What survives the tests that execute it is tried on all tests of the module: a result may be kept in
    memory, so that it is used by other tests than the one that computed it.
    """
    originals = {mutant.path: sandboxes[0].read(mutant.path) for mutant in mutants}
    waiting: list[tuple[Mutant, Sequence[str]]] = [
        (mutant, base.tests_of(mutant)) for mutant in reversed(mutants)
    ]
    busy: dict[int, tuple[Sandbox, Mutant, Sequence[str], StartedTests]] = {}
    free = list(sandboxes)
    try:
        while waiting or busy:
            while free and waiting:
                mutant, tests = waiting.pop()
                if not tests:
                    report(verdict(mutant, "not executed"))
                    continue
                sandbox = free.pop()
                running = _start(sandbox, base, mutant, tests)
                busy[running.pid] = (sandbox, mutant, tests, running)
            for sandbox, mutant, tests, running in list(busy.values()):
                if (found := finished(running)) is None:
                    continue
                del busy[running.pid]
                free.append(sandbox)
                if found[0] == "passed" and len(tests) < len(base.seconds):
                    waiting.append((mutant, list(base.seconds)))
                else:
                    report(_judge(mutant, *found))
            time.sleep(0.01)
    finally:
        for *_, running in busy.values():
            end_group(running)
        for sandbox in sandboxes:
            for path, source in originals.items():
                sandbox.write(path, source)


def _start(sandbox: Sandbox, base: Baseline, mutant: Mutant, tests: Sequence[str]) -> StartedTests:
    sandbox.write(mutant.path, mutant.source)
    files = [file for file in base.files if any(test.startswith(file) for test in tests)]
    return sandbox.start(TestRun(files, tests), base.limit(), WALL * base.limit())


def _judge(mutant: Mutant, outcome: str, answer: dict[str, Any]) -> Verdict:
    status = {"passed": "survived", "failed": "killed"}.get(outcome, outcome)
    return verdict(mutant, status, answer.get("failed", ""))


def _passing(sandbox: Sandbox, run: TestRun) -> dict[str, Any]:
    """The answer of a run on the original, which has to pass."""
    outcome, answer = wait(sandbox.start(run, 1800, 3600))
    if outcome != "passed":
        raise SystemExit(f"The tests fail without a mutant:\n{answer.get('log', outcome)}")
    return answer


def _warm(modules: Sequence[str]) -> None:
    """Import what the tests import and is not the project's, so that forks have it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in modules:
            if name not in sys.modules:
                with suppress(Exception):
                    importlib.import_module(name)
    gc.freeze()
