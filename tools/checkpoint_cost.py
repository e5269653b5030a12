"""What checkpoints cost: the same cells with and without them, in turns, each method by itself.

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
from tta_bench.exchange import Policy
from tta_bench.lane import Lane
from tta_bench.memory import MemoryReport
from tta_bench.progress import Progress
from tta_bench.run import run
from tta_bench.runner import LocalRunner

METHODS = ("tent", "eata", "t3a", "cotta", "foa", "zoa")
CORRUPTIONS = ["gaussian_noise", "fog", "contrast", "pixelate"]
BATCHES = 4  # a domain
Without = Callable[[], AbstractContextManager[Any]]


def _none() -> AbstractContextManager[Any]:
    """No checkpoint at a domain's end either."""
    return patch.object(Lane, "after", lambda *_: None)


MODES: dict[str, tuple[Policy, Without]] = {
    "without": (Policy(), _none),
    "as shipped": (Policy(), nullcontext),
    "every batch": (Policy(checkpoint_seconds=0), nullcontext),
}


def seconds(method: str, mode: str) -> tuple[float, float]:
    """One run of one cell in this process, records and checkpoints on disk: of the processor, on the wall."""
    policy, context = MODES[mode]
    stream = {"corruptions": CORRUPTIONS, "rounds": 2, "batch_size": 64, "limit": 64 * BATCHES}
    file = {"name": "cost", "data": "cifar10-mini", "models": ["vit-micro"], "methods": [method]}
    cells = grid.expand(config.parse(file | {"stream": stream}))
    no_bytes = patch("tta_bench.accounts.of", return_value=MemoryReport({}, {}, None, {}, bounded=True))
    with tempfile.TemporaryDirectory() as folder, context(), no_bytes:  # counting them takes its own time
        begun = time.process_time(), time.perf_counter()
        run("cost", cells, LocalRunner(policy), Path(folder), "missing", Progress(quiet=True))
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
        seconds(method, "without")  # images are made
        taken = [{mode: seconds(method, mode) for mode in MODES} for _ in range(arguments.turns)]
        ratios = [
            statistics.median(turn[name][clock] / turn["without"][clock] for turn in taken)
            for name in names
            for clock in (0, 1)
        ]
        print(f"| {method} |" + "".join(f" {ratio:.3f} |" for ratio in ratios), flush=True)


if __name__ == "__main__":
    main()
