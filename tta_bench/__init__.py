"""A declarative benchmark of test-time adaptation on quantised image classifiers.

Its functions are described in docs/python.md. They are imported on first use: `import tta_bench` loads
neither torch nor Ray nor pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tta_bench.commands.inputs import benchmark
    from tta_bench.commands.plan import memory, plan
    from tta_bench.commands.results import results
    from tta_bench.commands.run import run
    from tta_bench.config.benchmark import Benchmark
    from tta_bench.errors import UserError
    from tta_bench.tables.frame import load_results

__version__ = "0.3.0.dev0"
__all__ = ["Benchmark", "UserError", "benchmark", "load_results", "memory", "plan", "results", "run"]

_HOMES = {
    "Benchmark": "tta_bench.config.benchmark",
    "UserError": "tta_bench.errors",
    "benchmark": "tta_bench.commands.inputs",
    "load_results": "tta_bench.tables.frame",
    "memory": "tta_bench.commands.plan",
    "plan": "tta_bench.commands.plan",
    "results": "tta_bench.commands.results",
    "run": "tta_bench.commands.run",
}


def __getattr__(name: str) -> Any:
    """A public function, imported on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
