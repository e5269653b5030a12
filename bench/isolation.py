"""Section `isolation`: what it costs that no cell can change another's numbers, on the default grid."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.harness import DEFAULT, run_locally
from bench.measure import Clock, Measure
from tta_bench.execution.cell import cell_run
from tta_bench.execution.executor import Executor
from tta_bench.execution.stream_reader import StreamReader
from tta_bench.plugins import isolation as guards


class Added:
    """A context manager that adds up the time of checks and copies that only isolation needs."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._stack = ExitStack()

    def __enter__(self) -> Added:
        timed = self._guarded(guards.settings_kept)
        for target in (
            "tta_bench.execution.cell.cell_run.settings_kept",
            "tta_bench.execution.executor.settings_kept",
        ):
            self._stack.enter_context(patch(target, timed))
        self._stack.enter_context(patch.object(Executor, "_model", self._counted(Executor._model)))
        self._stack.enter_context(patch.object(StreamReader, "features", self._copied(StreamReader.features)))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _guarded(self, original: Callable[[str], Any]) -> Callable[[str], Any]:
        @contextmanager
        def timed(who: str) -> Iterator[None]:
            guard, start = original(who), time.perf_counter()
            guard.__enter__()
            self.seconds += time.perf_counter() - start
            yield
            start = time.perf_counter()
            guard.__exit__(None, None, None)
            self.seconds += time.perf_counter() - start

        return timed

    def _counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Time the model copy of a cell that only reads features; other cells need theirs anyway."""

        def timed(executor: Executor, cell: Any, method: Any) -> Any:
            start, built = time.perf_counter(), len(executor.models._models)
            model = original(executor, cell, method)
            if method.consumes == "features" and len(executor.models._models) == built:
                self.seconds += time.perf_counter() - start
            return model

        return timed

    def _copied(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Time the copy of every batch of features by making it once more."""

        def timed(reader: StreamReader, *arguments: Any) -> Iterator[Any]:
            for z, seconds in original(reader, *arguments):
                start = time.perf_counter()
                z.clone()
                self.seconds += time.perf_counter() - start
                yield z, seconds

        return timed


def isolation(_: Clock) -> Iterator[Measure]:
    """The share of a run that goes into checks and copies for isolation."""
    assert cell_run.settings_kept is guards.settings_kept
    with tempfile.TemporaryDirectory() as folder:
        run_locally(DEFAULT, Path(folder) / "warm-up")
        with Added() as added:
            start = time.perf_counter()
            run_locally(DEFAULT, Path(folder) / "watched")
            wall = time.perf_counter() - start
    yield Measure("default grid, 1 worker", "guards and copies", 100 * added.seconds / wall, "%", "≤ 3")
