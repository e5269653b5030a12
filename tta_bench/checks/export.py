"""`tta-bench export`: a quantised network as ONNX files, which other programs run and adapt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tta_bench.checks.quantization import QuantizationRequest, prepared
from tta_bench.config.parameters import spelled_out
from tta_bench.description import Description, columns
from tta_bench.errors import UserError
from tta_bench.files import replacing
from tta_bench.plugins import registry

ENGINE = "onnxruntime"  # which has the graphs
MIB = 2**20


def describe(request: QuantizationRequest, folder: Path) -> Description:
    """Write the files of a network into a folder; the files with their sizes."""
    if not hasattr(registry.load("quantizers", spelled_out("quantizers", request.quantizer)[0]), "engine"):
        raise UserError(f"{request.quantizer} has no integer engine and no graphs. Use --quantizer uniform.")
    chosen = [*request.params["quantizers"], f"engine={ENGINE}"]
    request = replace(request, params={**request.params, "quantizers": chosen})
    scheme, model, _, calibration = prepared(request, lambda scheme, model: scheme.unsupported_export(model))
    simulation = scheme.simulated()
    assert simulation is not None  # it has an engine
    files = scheme.network_files(simulation.install(model, calibration))
    _write(files, folder)
    sizes: list[dict[str, Any]] = [{"file": name, "bytes": len(content)} for name, content in files.items()]
    total = round(sum(map(len, files.values())) / MIB, 3)
    head = f"{len(files)} files, {total} MiB, in {folder}; network.json describes their inputs and outputs."
    return Description(f"{head}\n\n{columns(sizes)}", {"folder": str(folder), "mib": total, "files": sizes})


def _write(files: dict[str, bytes], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with replacing(folder / name) as file:
                file.write(content)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}). Choose another --output.") from None
