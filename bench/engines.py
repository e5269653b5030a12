"""Section `engines`: a pass and a ZOA step on integer engines, over FP32 PyTorch and over the simulation."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from bench.measure import Clock, Measure, race, ratios
from bench.networks import QUANTIZERS, floating, images, rough_calibration
from bench.passes import forward_pass, method_step
from tta_bench.api import Calibration, Model, Quantizer
from tta_bench.execution.process import resident_bytes

NETWORKS = ("vit-micro", "resnet-micro", "vit-b", "resnet-50")
BATCHES = (16, 1)
REPEATS = 7
SCHEME = "uniform W8A8"
LIMITS = {("vit-b", 16): {"pass onnxruntime": "≤ 0.40", "ZOA onnxruntime": "≤ 0.80"}}
MIB = 2**20


def engines(clock: Clock) -> Iterator[Measure]:
    """Every network: ratios at both batch sizes, sizes of files, memory of a process that runs one engine."""
    for name in NETWORKS:
        _report(f"{name}: loading")
        models = {engine: loaded(name, engine) for engine in available()}
        for batch in BATCHES:
            yield from _ratios(name, models, batch, clock)
        yield from _file_sizes(name, models["simulated"])
        del models
        for engine in ("FP32", *available()):
            _report(f"{name}: memory of {engine}")
            resident = _resident_mib(name, engine)
            yield Measure(f"engines, {name}, batch 16", f"resident memory {engine}", resident, "MiB")


def _report(progress: str) -> None:
    """Tell a waiting reader what is being measured."""
    print(f"engines, {progress}", file=sys.stderr, flush=True)


def available() -> list[str]:
    """The simulation and the engines that are installed."""
    found = ["simulated", "torch-int8"]
    return [*found, "onnxruntime"] if find_spec("onnxruntime") and find_spec("onnx") else found


def loaded(name: str, engine: str) -> Model:
    """A network on an engine."""
    return _installed(name, engine, rough_calibration(name, SCHEME))


def _installed(name: str, engine: str, calibration: Calibration) -> Model:
    scheme: Any = QUANTIZERS[SCHEME]
    quantizer: Quantizer = dataclasses.replace(scheme, engine=engine)
    return quantizer.install(floating(name), calibration)


def _ratios(name: str, models: Mapping[str, Model], batch: int, clock: Clock) -> Iterator[Measure]:
    """Passes and ZOA's steps over an FP32 pass and a simulated one, in turns; one image has no step."""
    section, x = f"engines, {name}, batch {batch}", images(models["simulated"], batch)
    runs = {"FP32 pass": forward_pass(floating(name), x)}
    runs |= {f"pass {engine}": forward_pass(model, x) for engine, model in models.items()}
    if batch > 1:  # ZOA changes its network
        runs |= {f"ZOA {engine}": method_step(deepcopy(model), "zoa", x) for engine, model in models.items()}
    turns = f"{name}, batch {batch}: turn {{}} of {REPEATS}"
    seconds = race(runs, clock, REPEATS, lambda turn: _report(turns.format(turn)))
    yield from ratios(section, seconds, "FP32 pass", LIMITS.get((name, batch), {}))
    for kind in ("pass", "ZOA"):
        of_kind = {key: times for key, times in seconds.items() if key.startswith(f"{kind} ")}
        if of_kind:
            yield from ratios(section, of_kind, f"{kind} simulated", {})


def _file_sizes(name: str, simulation: Model) -> Iterator[Measure]:
    """Bytes of the FP32 parameters, and of the files that `tta-bench export` writes."""
    section = f"engines, {name}"
    parameters = sum(p.nbytes for p in floating(name).parameters())
    yield Measure(section, "FP32 parameters", parameters / MIB, "MiB")
    if "onnxruntime" in available():
        files = QUANTIZERS[SCHEME].network_files(simulation)
        yield Measure(section, "exported files", sum(map(len, files.values())) / MIB, "MiB")


def _resident_mib(name: str, engine: str) -> float:
    """Resident memory that a network on an engine adds to a process of its own, after a batch of 16."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "calibration.safetensors"
        if engine != "FP32":
            save_file({key: tensor.clone() for key, tensor in rough_calibration(name, SCHEME).items()}, file)
        command = [sys.executable, "-m", "bench.engines", name, engine, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    """Print the MiB that a network on an engine has added to this process after a batch."""
    name, engine, file = sys.argv[1:]
    torch.set_num_threads(1)
    with torch.no_grad():  # imports and kernels, which every network needs
        floating("vit-micro")(images(floating("vit-micro"), 16))
    if engine in available():
        loaded("vit-micro", engine)
    before = resident_bytes() or 0
    model = floating(name) if engine == "FP32" else _installed(name, engine, load_file(file))
    with torch.no_grad():
        model(images(model, 16))
    print(((resident_bytes() or 0) - before) / MIB)


if __name__ == "__main__":
    main()
