"""The torch-free program in examples/deploy: the predictions of the harness, from exported files."""

from __future__ import annotations

import ast
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.helpers.command import tta_bench
from tta_bench.api import Domain, Model, Source
from tta_bench.corruptions.sets import IMAGENET_C_15
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.models.micro import VitMicro
from tta_bench_methods.zoa import Zoa
from tta_bench_quantizers.uniform import UniformQuantizer

pytestmark = pytest.mark.skipif(
    find_spec("onnxruntime") is None or find_spec("onnx") is None,
    reason="the extra tta-bench[onnx] is not installed",
)
PROGRAM = Path(__file__).parents[2] / "examples" / "deploy" / "adapt.py"
SOME = ("gaussian_noise", "fog", "contrast")


def program() -> Any:
    spec = spec_from_file_location("adapt", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported network, as the command writes it."""
    path = tmp_path_factory.mktemp("deploy") / "network"
    outcome = tta_bench("export", "--model", "vit-micro", "--output", path)
    assert outcome.returncode == 0, outcome.stderr
    return path


@pytest.fixture(scope="module")
def clean() -> Tensor:
    """More than a batch, so that the last one is smaller."""
    return Cifar10Mini().source_images()[:150]


@pytest.fixture(scope="module")
def engine(clean: Tensor) -> Model:
    quantizer, model = UniformQuantizer(engine="onnxruntime"), VitMicro().build()
    calibration = quantizer.calibrate(deepcopy(model), quantizer.calibration_set(clean), lambda *_: None)
    return quantizer.install(model, calibration)


def batches(corruptions: Sequence[str], images: int) -> Iterator[Tensor]:
    """One domain after the other at severity 5."""
    data = Cifar10Mini()
    for name in corruptions:
        domain = Domain(name, 5)
        data.prepare(domain, images)
        yield from data.test_images(domain, np.arange(images)).split(64)


def harness(engine: Model, clean: Tensor) -> Zoa:
    model = deepcopy(engine)
    method = Zoa(**(Zoa.presets(model.target()) | {"bank_size": 0}))
    with torch.no_grad():
        method.setup(model, Source(clean, 64))
    return method


def test_the_program_is_short_and_needs_no_torch() -> None:
    text = PROGRAM.read_text()
    assert len(text.splitlines()) <= 150
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {getattr(node, "module", None) or node.names[0].name for node in imports}
    outside = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert outside == {"numpy", "onnxruntime"}


@pytest.mark.parametrize(
    ("domains", "images"),
    [
        (SOME, 212),
        pytest.param(IMAGENET_C_15, 2000, marks=pytest.mark.slow),
    ],  # both leave a smaller last batch
)
def test_a_whole_stream_gets_the_same_bits(
    folder: Path, engine: Model, clean: Tensor, domains: Sequence[str], images: int
) -> None:
    """Logits and parameters are equal after every batch."""
    adapt, method = program(), harness(engine, clean)
    adapter = adapt.ZeroOrderAdapter(adapt.Network(folder), clean.numpy())
    for x in batches(domains, images):
        assert np.array_equal(adapter.step(x.numpy()), method.step(x).numpy())
        assert np.array_equal(adapter.epsilon, method.residual.numpy())
        assert np.allclose(adapter.history, method.history.mean, rtol=1e-12)
    assert method.shifts > 0
    assert method.skipped_updates == 0


def test_a_batch_of_one_image_is_predicted_without_a_step(folder: Path, engine: Model, clean: Tensor) -> None:
    adapt, method = program(), harness(engine, clean)
    adapter = adapt.ZeroOrderAdapter(adapt.Network(folder), clean.numpy())
    for x in (clean[:64], clean[64:65], clean[65:129]):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the standard deviation of one image
            assert np.array_equal(adapter.step(x.numpy()), method.step(x).numpy())
    assert method.skipped_updates == 1
    assert np.array_equal(adapter.epsilon, method.residual.numpy())


def test_the_command_prints_the_predictions_of_the_harness(
    folder: Path, engine: Model, clean: Tensor, tmp_path: Path
) -> None:
    stream = torch.cat(list(batches(SOME, 212)))
    np.save(tmp_path / "clean.npy", clean.numpy())
    np.save(tmp_path / "stream.npy", stream.numpy())
    command = [sys.executable, str(PROGRAM), str(folder), "clean.npy", "stream.npy"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    method = harness(engine, clean)
    expected = torch.cat([method.step(x).argmax(1) for x in stream.split(64)])
    assert [int(line) for line in printed.split()] == expected.tolist()
