"""Models at paper scale: pinned facts, any tag of timm's, weights that fit, do not fit, or are not there."""

from __future__ import annotations

import copy
import hashlib
import os
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.helpers.image_trees import files_hashed
from tta_bench import config, grid
from tta_bench.api import Model, Source
from tta_bench.cache import content_hash
from tta_bench.errors import ConfigError
from tta_bench.models import imagenet
from tta_bench.models.restricted import restrict_classes_
from tta_bench.models.timm_tags import Timm, facts_of
from tta_bench.plugins import registry

TINY = "test_vit.r160_in1k"  # timm's own, made for tests
TINY_RESNET = "test_resnet.r160_in1k"


# Pinned models ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [imagenet.VitB, imagenet.VitL, imagenet.ResNet50, imagenet.ResNet50Timm])
def test_pinned_facts_are_those_of_the_weights(cls: Any) -> None:
    facts = facts_of(cls.tag)
    assert (facts.family, facts.view, facts.num_classes) == (cls.family, cls.view, cls.num_classes)
    assert dict(facts.scale) == dict(cls.scale)


def test_the_tags_are_those_of_the_reference_numbers() -> None:
    assert imagenet.VitB.tag == "vit_base_patch16_224.augreg2_in21k_ft_in1k"
    assert imagenet.ResNet50.tag == "resnet50.tv_in1k"


def test_random_weights_are_the_same_everywhere_and_have_a_hash() -> None:
    source = Timm(TINY, weights="random")
    before = torch.get_rng_state()
    one, two = source.build(), source.build()
    assert torch.equal(before, torch.get_rng_state()), "building has moved the global generator"
    for a, b in zip(one.net.parameters(), two.net.parameters(), strict=True):
        assert torch.equal(a, b)
    assert one.weights_sha256 == source.fingerprint()
    assert len(source.fingerprint()) == 64
    assert Timm(TINY_RESNET, weights="random").fingerprint() != source.fingerprint()


# timm:TAG -----------------------------------------------------------------------------------------

FILE: dict[str, Any] = {
    "name": "tags",
    "data": {"use": "imagenet", "root": "."},
    "models": [f"timm:{TINY}"],
    "methods": ["source"],
    "stream": {"corruptions": "clean"},
}


def test_a_tag_is_a_model_of_its_own() -> None:
    entries = [f"timm:{TINY}", {"use": "timm", "tag": TINY_RESNET, "weights": "random"}]
    benchmark = config.parse(FILE | {"models": entries})
    assert [(m.use, m.name) for m in benchmark.models] == [("timm", "test_vit"), ("timm", "test_resnet")]
    vit, resnet = grid.expand(benchmark)
    assert vit.model.params["tag"] == TINY
    assert vit.key != resnet.key
    assert vit.data.params["input_size"] == 160, "the data is cut as the weights want it"
    assert vit.data.params["interpolation"] == "bicubic"


@pytest.mark.parametrize("tag", [TINY, TINY_RESNET, "deit_tiny_patch16_224.fb_in1k", "resnet26t.ra2_in1k"])
def test_adapters_compute_what_the_networks_compute(tag: str) -> None:
    source = Timm(tag, weights="random")
    model = source.build()
    assert (model.family, model.name) == (source.family, tag.split(".")[0])
    x = torch.rand(1, 3, source.input_size, source.input_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(model(x), model.net(model.normalise(x)))


REFUSED = {
    "deit_tinny_patch16_224.fb_in1k": ["no tag of timm's", "deit_tiny_patch16_224.fb_in1k"],
    "resnet18": ["names no weights", "resnet18.a1_in1k", "resnet18.tv_in1k"],
    "swin_tiny_patch4_window7_224.ms_in1k": ["no tag of timm's ViT, DeiT and ResNet"],
    "deit_tiny_distilled_patch16_224.fb_in1k": ["not supported", "deit_tiny_patch16_224.fb_in1k"],
}


@pytest.mark.parametrize("tag", REFUSED)
def test_tags_that_cannot_be_had_are_refused_with_near_ones(tag: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        config.parse(FILE | {"models": [f"timm:{tag}"]})
    for part in ["models[0]", *REFUSED[tag]]:
        assert part in str(refusal.value)


def test_a_plugin_without_fields_takes_no_value() -> None:
    with pytest.raises(ConfigError, match=r"source:now.*Write source"):
        config.parse(FILE | {"methods": ["source:now"]})


def test_a_model_of_another_size_does_not_fit_imagenet_c() -> None:
    with pytest.raises(ConfigError, match="test_vit has 160 pixels per side, and data imagenet-c has 224"):
        config.parse(FILE | {"data": "imagenet-c"})


def test_fine_tuned_weights_may_have_other_classes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has 1000 classes, not 7"):
        Timm(TINY, classes=7)
    state = Timm(TINY, weights="random", classes=7).build().net.state_dict()
    save_file(state, tmp_path / "seven.safetensors")
    source = Timm(TINY, weights=str(tmp_path / "seven.safetensors"), classes=7)
    assert source.problems() == []
    assert source.build().head_bias.shape == (7,)


# Weights ------------------------------------------------------------------------------------------


def put_into_hub_cache(cache: Path, tag: str) -> Path:
    """A file where the hub's client keeps what it has downloaded."""
    home = cache / f"models--timm--{tag}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("0" * 40)
    path = home / "snapshots" / ("0" * 40) / "model.safetensors"
    path.parent.mkdir(parents=True)
    save_file(Timm(tag, weights="random").build().net.state_dict(), path)
    return path


def test_downloaded_weights_are_found_and_known_by_their_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    path = put_into_hub_cache(tmp_path, TINY)
    source = Timm(TINY)
    assert source.problems() == []
    assert source.fingerprint() == hashlib.sha256(path.read_bytes()).hexdigest()
    assert source.build().weights_sha256 == source.fingerprint()


def test_overwritten_weights_of_equal_size_and_time_are_other_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_hash, "SETTLED_SECONDS", 0.0)
    state, path = Timm(TINY, weights="random").build().net.state_dict(), tmp_path / "weights.safetensors"
    save_file(state, path)
    time.sleep(0.02)  # the file system's clock moves on
    source, status = Timm(TINY, weights=str(path)), path.stat()
    before = source.fingerprint()
    read = files_hashed(monkeypatch)
    assert Timm(TINY, weights=str(path)).fingerprint() == before
    assert read == [], "read again"
    save_file({name: -tensor for name, tensor in state.items()}, path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert source.fingerprint() == hashlib.sha256(path.read_bytes()).hexdigest() != before
    assert source.build().weights_sha256 == source.fingerprint()


def test_weights_in_the_home_folder_are_known_by_their_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    save_file(Timm(TINY, weights="random").build().net.state_dict(), tmp_path / "weights.safetensors")
    source = Timm(TINY, weights="~/weights.safetensors")
    assert source.problems() == []
    assert source.fingerprint() == source.build().weights_sha256 != ""


def test_weights_that_cannot_be_had_are_told_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    source = Timm("resnet10t.c3_in1k")
    source.fetch()
    (problem,) = source.problems()
    assert "timm/resnet10t.c3_in1k are not in the hub's cache and cannot be downloaded" in problem
    assert "give `weights: PATH`" in problem
    assert source.fingerprint() == ""
    (problem,) = imagenet.VimS().problems()
    assert "vim_s_midclstok_80p5acc.pth" in problem


def official_vim_state(depth: int = 24) -> dict[str, Tensor]:
    """A state dict with the names and shapes of the published vim_s_midclstok checkpoint."""
    mixer = {"A_log": (768, 16), "D": (768,), "in_proj.weight": (1536, 384), "out_proj.weight": (384, 768)}
    mixer |= {"A_b_log": (768, 16), "D_b": (768,)}
    for way in ("", "_b"):
        mixer |= {f"conv1d{way}.weight": (768, 1, 4), f"conv1d{way}.bias": (768,)}
        mixer |= {f"x_proj{way}.weight": (56, 768)}
        mixer |= {f"dt_proj{way}.weight": (768, 24), f"dt_proj{way}.bias": (768,)}
    shapes: dict[str, tuple[int, ...]] = {"cls_token": (1, 1, 384), "pos_embed": (1, 197, 384)}
    shapes |= {"patch_embed.proj.weight": (384, 3, 16, 16), "patch_embed.proj.bias": (384,)}
    for i in range(depth):
        shapes[f"layers.{i}.norm.weight"] = (384,)
        shapes |= {f"layers.{i}.mixer.{name}": shape for name, shape in mixer.items()}
    shapes |= {"norm_f.weight": (384,), "head.weight": (1000, 384), "head.bias": (1000,)}
    rng = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=rng) * 0.02 for name, shape in shapes.items()}


def test_vim_loads_the_official_checkpoint(tmp_path: Path) -> None:
    state = official_vim_state()
    path = tmp_path / "vim_s_midclstok_80p5acc.pth"
    torch.save({"model": state, "epoch": 299, "args": Namespace(lr=5e-4, model="vim_small")}, path)
    source = imagenet.VimS(weights=str(path))
    assert source.problems() == []
    model = source.build()
    for name, tensor in model.net.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert model.weights_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def renamed(state: dict[str, Any]) -> None:
    state["layers.3.mixer.A_log_b"] = state.pop("layers.3.mixer.A_b_log")


def reshaped(state: dict[str, Any]) -> None:
    state["head.weight"] = torch.zeros(10, 384)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (renamed, ["missing: layers.3.mixer.A_b_log", "unexpected: layers.3.mixer.A_log_b"]),
        (reshaped, ["of another shape: head.weight [10, 384] instead of [1000, 384]"]),
        (dict.clear, ["missing: ", " more"]),
    ],
)
def test_a_wrong_state_dict_is_refused_by_its_keys(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], parts: list[str]
) -> None:
    state = official_vim_state()
    change(state)
    torch.save({"model": state}, tmp_path / "wrong.pth")
    source = imagenet.VimS(weights=str(tmp_path / "wrong.pth"))
    (problem,) = source.problems()
    assert problem.startswith(str(tmp_path / "wrong.pth"))
    for part in parts:
        assert part in problem
    with pytest.raises(Exception, match=r"wrong\.pth"):
        source.build()


class Evil:
    """What a malicious file would have run."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


def test_only_tensors_are_loaded(tmp_path: Path) -> None:
    trace = tmp_path / "it ran"
    files = {
        "evil.pth": lambda path: torch.save({"model": Evil(trace)}, path),
        "text.pth": lambda path: path.write_text("no weights"),
        "text.safetensors": lambda path: path.write_text("no weights"),
        "list.pth": lambda path: torch.save([1, 2], path),
    }
    for name, write in files.items():
        write(tmp_path / name)
        (problem,) = Timm(TINY, weights=str(tmp_path / name)).problems()
        assert name in problem
        assert "state dict" in problem
    assert not trace.exists()


# Fewer classes ------------------------------------------------------------------------------------

KEPT = np.array([7, 2, 5])


@pytest.fixture(scope="module")
def pair() -> tuple[Model, Model]:
    """A model, and the same one cut down to three classes."""
    whole = registry.load("models", "vit-micro")().build()
    few = copy.deepcopy(whole)
    restrict_classes_(few, KEPT)
    return whole, copy.deepcopy(few)


def test_a_restricted_model_has_the_logits_of_its_classes(pair: tuple[Model, Model]) -> None:
    whole, few = pair
    x = torch.rand(4, 3, 32, 32)
    assert torch.equal(few(x), whole(x)[:, KEPT])
    assert few.num_classes == 3
    assert torch.equal(few.head_weight, whole.head_weight[KEPT])


@pytest.mark.parametrize("name", ["t3a", "lame", "sar", "zoa"])
def test_methods_adapt_to_the_classes_that_are_left(pair: tuple[Model, Model], name: str) -> None:
    model = copy.deepcopy(pair[1])
    cls = registry.load("methods", name)
    method = cls(**cls.presets(model.target()))
    images = torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        method.setup(model, Source(images, 8))
        given = model.features(images) if method.consumes == "features" else images
        assert method.step(given).shape == (16, 3)
