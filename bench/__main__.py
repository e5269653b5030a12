"""`python -m bench`: run the sections, print their table, write bench.json."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from bench import agreement, compiled, engines, growth, harness, isolation, loading, passes, scale
from bench.measure import Clock, Measure
from tta_bench.cache import native_code
from tta_bench.execution.process import keep_freed_memory

SECTIONS: dict[str, Callable[[Clock], Iterator[Measure]]] = {
    "forward": passes.forward,
    "steps": passes.steps,
    "scaling": passes.scaling,
    "data": loading.data,
    "grid": harness.grid,
    "added": harness.added,
    "workers": harness.workers,
    "cells": scale.cells,
    "drivers": scale.drivers,
    "isolation": isolation.isolation,
    "compiled": compiled.compiled,
    "growth": growth.growth,
    "engines": engines.engines,
    "agreement": agreement.engines_agree,
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", choices=SECTIONS, nargs="+", default=list(SECTIONS), help="sections to run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="measure CPU time (on a busy machine)")
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    options = parser.parse_args()
    if options.cpu_time and options.threads != 1:
        parser.error("--cpu-time: the time of one thread. Add `--threads 1`.")
    clock = time.thread_time if options.cpu_time else time.perf_counter
    torch.set_num_threads(options.threads)
    kept = keep_freed_memory()
    start, facts = time.perf_counter(), _machine(options.threads) | {"keeps_freed_memory": kept}
    print(", ".join(f"{key} {value}" for key, value in facts.items()), flush=True)
    found = []
    for section in options.only:
        for measure in SECTIONS[section](clock):
            print(line(measure), flush=True)
            found.append(dataclasses.asdict(measure) | {"held": measure.held})
    facts["seconds"] = round(time.perf_counter() - start, 1)
    options.output.write_text(json.dumps({"machine": facts, "measures": found}, indent=1, ensure_ascii=False))
    print(f"{facts['seconds']} s; written to {options.output}")


def line(measure: Measure) -> str:
    """A row of the table."""
    spread = "" if measure.low is None else f"{measure.low:.2f} … {measure.high:.2f}"
    mark = {None: "", True: "ok", False: "missed"}[measure.held]
    value = f"{measure.value:8.3f} {measure.unit}"
    columns = (f"{measure.section:<46}", f"{measure.name:<28}", f"{value:<11}", f"{spread:<14}")
    return " ".join([*columns, f"{measure.limit:<7}", mark]).rstrip()


def _machine(threads: int) -> dict[str, object]:
    has_library = native_code.library("tta_bench_quantizers._core", "kernels.cpp") is not None
    return {
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": threads,
        "compiled": has_library,
        "load": round(os.getloadavg()[0], 2),
        "system": platform.system(),
    }


if __name__ == "__main__":
    main()
