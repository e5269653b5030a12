"""The torch-free program in examples/deploy: the predictions of the harness, from exported files."""

from __future__ import annotations

import ast
import subprocess
import sys
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
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.models.micro import VitMicro
from tta_bench_methods.zoa import Zoa
from tta_bench_quantizers.uniform import UniformQuantizer

pytestmark = pytest.mark.skipif(
    find_spec("onnxruntime") is None or find_spec("onnx") is None,
    reason="the extra tta-bench[onnx] is not installed",
)
PROGRAM = Path(__file__).parents[2] / "examples" / "deploy" / "adapt.py"
DOMAINS = (Domain("gaussian_noise", 5), Domain("fog", 5))
BATCHES = 3  # of 64 images, in every domain


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
    return Cifar10Mini().source_images()


@pytest.fixture(scope="module")
def batches() -> list[Tensor]:
    data, count, parts = Cifar10Mini(), 64 * BATCHES, []
    for domain in DOMAINS:
        data.prepare(domain, count)
        parts += data.test_images(domain, np.arange(count)).split(64)
    return parts


@pytest.fixture(scope="module")
def engine(clean: Tensor) -> Model:
    quantizer, model = UniformQuantizer(engine="onnxruntime"), VitMicro().build()
    calibration = quantizer.calibrate(deepcopy(model), quantizer.calibration_set(clean), lambda *_: None)
    return quantizer.install(model, calibration)


def harness(engine: Model, clean: Tensor) -> Zoa:
    model = deepcopy(engine)
    method = Zoa(**(Zoa.presets(model.target()) | {"bank_size": 0}))
    with torch.no_grad():
        method.setup(model, Source(clean[:64], 64))
    return method


def test_the_program_is_short_and_needs_no_torch() -> None:
    text = PROGRAM.read_text()
    assert len(text.splitlines()) <= 150
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {getattr(node, "module", None) or node.names[0].name for node in imports}
    outside = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert outside == {"numpy", "onnxruntime"}


def test_from_the_same_state_logits_are_equal_bit_for_bit(
    folder: Path, engine: Model, clean: Tensor, batches: list[Tensor]
) -> None:
    """Every step starts at the harness's state; the state after it differs by rounding only."""
    adapt, method = program(), harness(engine, clean)
    adapter = adapt.ZeroOrderAdapter(adapt.Network(folder), clean[:64].numpy())
    adapter.means = [mean.numpy() for mean in method.source_statistics.means]
    adapter.stds = [std.numpy() for std in method.source_statistics.stds]
    for x in batches:
        before, mean = method.residual.clone(), method.history.mean
        adapter.epsilon, adapter.history = before.numpy(), None if mean is None else mean.numpy()
        assert np.array_equal(adapter.step(x.numpy()), method.step(x).numpy())
        mine, theirs = adapter.epsilon - before.numpy(), (method.residual - before).numpy()
        assert np.linalg.norm(mine - theirs) < 0.05 * np.linalg.norm(theirs)
    assert method.shifts == 1


def test_on_its_own_the_program_predicts_like_the_harness(
    folder: Path, engine: Model, clean: Tensor, batches: list[Tensor], tmp_path: Path
) -> None:
    np.save(tmp_path / "clean.npy", clean[:64].numpy())
    np.save(tmp_path / "stream.npy", torch.cat(batches).numpy())
    command = [sys.executable, str(PROGRAM), str(folder), "clean.npy", "stream.npy"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    method = harness(engine, clean)
    expected = torch.cat([method.step(x).argmax(1) for x in batches])
    found = torch.tensor([int(line) for line in printed.split()])
    assert found.shape == expected.shape
    assert torch.equal(found[:64], expected[:64]), "nothing has been learnt before the first batch"
    assert (found == expected).float().mean() >= 0.97
