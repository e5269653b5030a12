"""The cost of checkpoints: the same cell with and without them, in turns, for several methods.

python tools/checkpoint_cost.py --turns 7
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tta_bench import config, grid
from tta_bench.execution.cell.cell_run import CellRun
from tta_bench.execution.local import LocalRunner
from tta_bench.execution.messages import RunPolicy
from tta_bench.execution.progress import RunProgress
from tta_bench.execution.run import run
from tta_bench.footprint.account import MemoryReport

METHODS = ("tent", "eata", "t3a", "cotta", "foa", "zoa")
CORRUPTIONS = ["gaussian_noise", "fog", "contrast", "pixelate"]
BATCHES = 4  # per domain
Without = Callable[[], AbstractContextManager[Any]]


def _none() -> AbstractContextManager[Any]:
    """Switch off checkpoints at the end of domains."""
    return patch.object(CellRun, "after", lambda *_: None)


MODES: dict[str, tuple[RunPolicy, Without]] = {
    "without": (RunPolicy(), _none),
    "as shipped": (RunPolicy(), nullcontext),
    "every batch": (RunPolicy(checkpoint_seconds=0), nullcontext),
}


def seconds(method: str, mode: str) -> tuple[float, float]:
    """CPU and wall time of one run of one cell in this process, with records and checkpoints on disk."""
    policy, context = MODES[mode]
    stream = {"corruptions": CORRUPTIONS, "rounds": 2, "batch_size": 64, "limit": 64 * BATCHES}
    file = {"name": "cost", "data": "cifar10-mini", "models": ["vit-micro"], "methods": [method]}
    cells = grid.expand(config.parse(file | {"stream": stream}))
    no_report = MemoryReport({}, {}, None, {}, bounded=True)
    no_bytes = patch("tta_bench.footprint.cache.of", return_value=no_report)
    with tempfile.TemporaryDirectory() as folder, context(), no_bytes:  # counting memory would take time
        begun = time.process_time(), time.perf_counter()
        run("cost", cells, LocalRunner(policy), Path(folder), "missing", RunProgress(quiet=True))
        return time.process_time() - begun[0], time.perf_counter() - begun[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    arguments = parser.parse_args()
    names = list(MODES)[1:]
    print("| method |" + "".join(f" {name}: processor | wall |" for name in names))
    print("|---" * (1 + 2 * len(names)) + "|")
    for method in arguments.methods:
        seconds(method, "without")  # prepares images
        taken = [{mode: seconds(method, mode) for mode in MODES} for _ in range(arguments.turns)]
        ratios = [
            statistics.median(turn[name][clock] / turn["without"][clock] for turn in taken)
            for name in names
            for clock in (0, 1)
        ]
        print(f"| {method} |" + "".join(f" {ratio:.3f} |" for ratio in ratios), flush=True)


if __name__ == "__main__":
    main()
