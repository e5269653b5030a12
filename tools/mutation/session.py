"""The pytest plugins of a run on a mutant: which tests to run, what they executed, how long they took."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

AT_IMPORT = ""  # lines that are executed before the first test starts


@dataclass
class Chosen:
    """Runs some tests in a given order, and remembers the first that failed and the time of each."""

    wanted: Sequence[str] | None = None  # None: all
    failed: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the wanted tests, in their order."""
        if self.wanted is not None:
            order = {name: i for i, name in enumerate(self.wanted)}
            items[:] = sorted((i for i in items if i.nodeid in order), key=lambda item: order[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Take the time of a test with its fixtures."""
        start = time.process_time()
        result = yield
        self.seconds[item.nodeid] = time.process_time() - start
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


class LineTrace:
    """Finds the lines of one file that each test executes."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.lines: dict[str, set[int]] = defaultdict(set)
        self._test = AT_IMPORT

    def start(self) -> None:
        """Trace all threads that start from now on, and this one."""
        threading.settrace(self._called)
        sys.settrace(self._called)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Lines executed from here on belong to this test."""
        self._test = item.nodeid
        return (yield)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename == self.path else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines[self._test].add(frame.f_lineno)
        return self._line
