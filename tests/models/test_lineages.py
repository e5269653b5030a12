"""Two trainings of one architecture are two models: torchvision's ViT-B and FOA's, two of ResNet-50."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torchvision
from torch import nn

from tests.helpers.report_results import PAPER, write
from tta_bench import config, grid
from tta_bench.config.smoke import shrunk
from tta_bench.data.imagenet.imagenet_c import ImageNetC
from tta_bench.errors import ConfigError
from tta_bench.models.imagenet import ResNet50, ResNet50Timm, VitB
from tta_bench.models.torchvision import hub as torch_hub
from tta_bench.models.torchvision.vit import FILE, VitBTorchvision, timm_name
from tta_bench.tables import frame
from tta_bench.tables.build import build
from tta_bench.tables.table import TableError

VIT, RESNET = torchvision.models.ViT_B_16_Weights.IMAGENET1K_V1, torchvision.models.ResNet50_Weights
IMAGES = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


# torchvision's names ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny() -> tuple[nn.Module, nn.Module]:
    """The same small transformer, built by torchvision and by timm."""
    theirs = torchvision.models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=64, num_classes=5
    )
    nn.init.normal_(theirs.heads.head.weight)  # zero at first
    ours = timm.models.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=5
    )
    return theirs.eval(), ours.eval()


def test_renamed_tensors_compute_what_torchvision_computes(tiny: tuple[nn.Module, nn.Module]) -> None:
    theirs, ours = tiny
    ours.load_state_dict({timm_name(key): tensor for key, tensor in theirs.state_dict().items()})
    with torch.no_grad():
        assert torch.allclose(ours(IMAGES), theirs(IMAGES), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("old", [False, True])
def test_every_key_of_vit_b_is_renamed(old: bool) -> None:
    with torch.device("meta"):
        theirs, ours = (
            torchvision.models.vit_b_16().state_dict(),
            VitBTorchvision().skeleton().net.state_dict(),
        )
    if old:  # the published file is older than torchvision's names of today
        theirs = {
            key.replace(".mlp.0.", ".mlp.linear_1.").replace(".mlp.3.", ".mlp.linear_2."): tensor
            for key, tensor in theirs.items()
        }
    found = {timm_name(key): tensor.shape for key, tensor in theirs.items()}
    assert found == {key: tensor.shape for key, tensor in ours.items()}


def test_facts_are_those_of_torchvision() -> None:
    shown: Any = VIT.transforms()
    source = VitBTorchvision()
    assert (list(source.scale["mean"]), list(source.scale["std"])) == (shown.mean, shown.std)
    assert source.view is not None
    assert ([source.view.size], [source.view.resize]) == (shown.crop_size, shown.resize_size)
    assert source.view.interpolation == shown.interpolation.value
    with torch.device("meta"):
        nets = (torchvision.models.vit_b_16(), source.skeleton().net)
    kinds = [{m.eps for m in net.modules() if isinstance(m, nn.LayerNorm)} for net in nets]
    assert kinds == [{1e-6}, {1e-6}]
    assert VIT.url.endswith(FILE)


def test_torchvisions_file_of_resnet_50_has_our_names() -> None:
    with torch.device("meta"):
        theirs, ours = torchvision.models.resnet50().state_dict(), ResNet50().skeleton().net.state_dict()
    assert {k: t.shape for k, t in theirs.items()} == {k: t.shape for k, t in ours.items()}
    shown: Any = RESNET.IMAGENET1K_V1.transforms()
    assert ResNet50.view is not None
    assert ([ResNet50.view.resize], ResNet50.view.interpolation) == (
        shown.resize_size,
        shown.interpolation.value,
    )


# The file -----------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of torch.hub, without a network."""

    def unreachable(*arguments: Any, **options: Any) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
    torch_hub._download.cache_clear()
    return tmp_path


def test_a_missing_file_is_told_with_a_remedy(hub: Path) -> None:
    source = VitBTorchvision()
    source.fetch()
    (problem,) = source.problems()
    assert problem.startswith(f"the weights {FILE} are not in torch's hub folder and cannot be downloaded")
    assert "give `weights: PATH`" in problem
    assert source.fingerprint() == ""


def test_a_file_with_another_hash_is_refused(hub: Path) -> None:
    path = hub / "checkpoints" / FILE
    path.parent.mkdir()
    path.write_text("cut short")
    (problem,) = VitBTorchvision().problems()
    assert problem.startswith(f"{path}: its SHA-256 begins with ")
    assert "and that of the published file with c867db91" in problem


def test_a_download_is_found(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def download(url: str, path: str, hash_prefix: str, progress: bool) -> None:
        asked.append((url, hash_prefix))
        Path(path).write_text("weights")

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    monkeypatch.setattr(torch_hub, "verified", lambda path, digits: path)
    assert VitBTorchvision()._fetched() == hub / "checkpoints" / FILE
    assert VitBTorchvision()._fetched() == hub / "checkpoints" / FILE
    assert asked == [(VIT.url, "c867db91")]


# Separate models ----------------------------------------------------------------------------------

PAIRS = {"vit": (VitB, VitBTorchvision), "resnet": (ResNet50, ResNet50Timm)}
TWO = ("vit-b", "vit-b-torchvision")


@pytest.mark.parametrize("family", PAIRS)
def test_two_trainings_differ_in_name_and_preparation(family: str) -> None:
    one, other = (cls() for cls in PAIRS[family])
    assert one.family == other.family == family
    assert one.name != other.name
    assert one.view != other.view
    resized = [ImageNetC.presets(source)["resize"] for source in (one, other)]
    assert resized == [source.view.resize for source in (one, other) if source.view]


@pytest.fixture
def cells() -> Callable[..., list[Any]]:
    """The cells of a benchmark of these models."""

    def cells(*models: Any) -> list[Any]:
        data = {"use": "imagenet-c", "root": "."}
        stream = {"corruptions": ["fog"], "rounds": 1}
        file = {"name": "two", "data": data, "models": list(models), "methods": ["source"], "stream": stream}
        return list(grid.expand(config.parse(file)))

    return cells


def test_they_are_cells_with_keys_and_rows_of_their_own(cells: Callable[..., list[Any]]) -> None:
    found = cells(*TWO)
    assert len({cell.key for cell in found}) == 2
    assert [cell.labels.model for cell in found] == list(TWO)
    with pytest.raises(ConfigError, match="ViT-B"):
        cells(*({"use": name, "name": "ViT-B"} for name in TWO))


def test_micro_runs_the_small_network_of_the_family() -> None:
    models = ["vit-b-torchvision", "resnet-50-timm"]
    file = {"name": "two", "data": "imagenet-c", "models": models, "methods": ["source"]}
    assert [choice.use for choice in shrunk(config.parse(file)).models] == ["vit-micro", "resnet-micro"]


def test_a_table_has_a_group_for_each_training(tmp_path: Path) -> None:
    store = write(replace(PAPER, models=tuple((name, name) for name in TWO)), tmp_path)
    table = build(frame.load(store), "per-corruption")
    assert [group.label for group in table.groups] == [f"{name} W8A8" for name in TWO]
    assert all(len(group.rows) == len(PAPER.methods) for group in table.groups)


def test_one_group_of_both_is_refused(tmp_path: Path) -> None:
    store = write(replace(PAPER, models=tuple(("ViT-B", name) for name in TWO)), tmp_path)
    with pytest.raises(TableError, match=r"would mix .*model\.use vit-b, vit-b-torchvision"):
        build(frame.load(store), "per-corruption")
