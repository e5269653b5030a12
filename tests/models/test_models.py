"""The models: facts without weights, the embedded weights, and weights that are not there."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

import tta_bench
from tta_bench.api import Domain, ModelSource
from tta_bench.models.imagenet import VimS, VitB
from tta_bench.plugins import registry


@pytest.mark.parametrize("name", registry.names("models"))
def test_facts_hold_without_weights(name: str) -> None:
    source: ModelSource = registry.load("models", name)()
    with torch.device("meta"):
        model = source.skeleton()
    assert (model.family, model.num_classes) == (source.family, source.num_classes)
    blocks = [norm.block for norm in model.norms()]
    assert blocks == sorted(blocks)
    assert max(blocks) <= len(model.blocks)


@pytest.mark.parametrize(
    ("name", "parameters"), [("vit-b", 86_567_656), ("resnet-50", 25_557_032), ("vim-s", 25_796_584)]
)
def test_paper_scale_models_have_their_published_sizes(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = registry.load("models", name)().skeleton()
    assert sum(p.numel() for p in model.net.parameters()) == parameters


@pytest.mark.parametrize(
    ("name", "least"), [("resnet-micro", 82.0), ("vit-micro", 68.0), ("vim-micro", 65.0)]
)
def test_the_embedded_weights_recognise_clean_images(name: str, least: float) -> None:
    data = registry.load("data", "cifar10-mini")()
    images = data.test_images(Domain("clean", 0), np.arange(1000))
    labels = torch.from_numpy(data.test_labels()[:1000])
    model = registry.load("models", name)().build()
    hits = sum(
        int((model(x).argmax(1) == y).sum())
        for x, y in zip(images.split(250), labels.split(250), strict=True)
    )
    assert hits / 10 >= least


@pytest.mark.parametrize("name", ["vit-micro", "resnet-micro", "vim-micro"])
def test_embedded_weights_are_small_and_their_hash_is_the_files(name: str) -> None:
    path = Path(tta_bench.__file__).parent / "assets" / f"{name}.safetensors"
    assert path.stat().st_size <= 3_000_000
    source = registry.load("models", name)()
    assert source.fingerprint() == hashlib.sha256(path.read_bytes()).hexdigest()
    assert source.build().weights_sha256 == source.fingerprint()


def test_missing_weights_are_named_with_a_remedy(tmp_path: Path) -> None:
    (problem,) = VitB(weights=str(tmp_path / "none.pth")).problems()
    assert "none.pth is missing" in problem
    assert "state dict" in problem


def test_vim_reads_the_official_parameter_names(tmp_path: Path) -> None:
    source = VimS(weights="random")
    state = source.skeleton().net.state_dict()
    assert {"layers.0.mixer.A_b_log", "layers.23.mixer.x_proj_b.weight", "norm_f.weight"} <= set(state)
    path = tmp_path / "vim.pth"
    torch.save({"model": state}, path)
    loaded = VimS(weights=str(path))
    assert torch.equal(loaded.build().net.cls_token, state["cls_token"])
    assert loaded.fingerprint() == hashlib.sha256(path.read_bytes()).hexdigest()
