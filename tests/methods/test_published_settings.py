"""Defaults and presets are the published settings, for ImageNet and for CIFAR."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.methods.streams import ready
from tta_bench.api import Target
from tta_bench.plugins import registry
from tta_bench.plugins.identity import identify
from tta_bench_methods._shared.gradient import GradientMethod

SGD = {"optimizer": "sgd", "momentum": 0.9, "nesterov": True}
ADAM = {"optimizer": "adam", "lr": 1e-3}
ROID = SGD | {"lr": 2.5e-4, "source_momentum": 0.99, "temperature": 1 / 3, "prior_correction": True}
ROTTA = ADAM | {"teacher_rate": 1e-3, "norm_momentum": 0.05, "capacity": 64}
ETA = {"margin": 0.4, "redundancy": 0.05, "momentum": 0.9, "optimizer": "sgd"}
PEA = {"variant": "corrected", "views": 1, "momentum": 0.02, "running_rate": 0.2, "entropy_rise": 1.0}
ENTROPY = {"momentum": 0.9, "loss": "entropy"}
# On ViT-B, or on ResNet-50 for methods that need BatchNorm2d.
PUBLISHED: dict[str, dict[str, Any]] = {
    "neo": {"continual": False, "alpha": 0.1},
    "cofa": {"filter": True},
    "prior-correction": {"space": "logits"},
    "pea": PEA | {"drift_limit": 4.0, "group": 0},
    "fozo": {"variant": "corrected", "lr": 0.08, "step_size": 0.5, "pairs": 1, "prompts": 3, "lam": 0.4},
    "pace": {
        "population": 27,
        "sigma": 0.05,
        "lam": 0.4,
        "fitness": "sum",
        "stop_below": 0.045,
        "tau": 0.03,
        "bank_size": 30,
    },
    "iabn": {"k": 4.0, "momentum": 0.01, "capacity": 64},
    "tbr": {"momentum": 0.95},
    "tent": ENTROPY | {"lr": 1e-3, "nesterov": False, "weight_decay": 0.0},
    "eta": ETA | {"lr": 1e-3},
    "eata": ETA | {"lr": 1e-3, "fisher_weight": 2000.0, "fisher_images": 2000},
    "rdumb": ETA | {"lr": 1e-3, "reset_every": 1000},
    "rotta": ROTTA,
    "petta": ROTTA | {"pull": 10.0, "loss": "ce", "adaptive": True},
    "note": {"optimizer": "adam", "lr": 1e-4, "k": 4.0, "norm_momentum": 0.01, "capacity": 64},
    "roid": ROID,
    "cmf": ROID | {"noise": 0.005, "source_pull": 0.99},
    "rmt": SGD | {"lr": 1e-2, "teacher_momentum": 0.999, "teacher_weight": 1.0, "contrast_weight": 1.0},
    "santa": SGD | {"lr": 1e-2, "contrast_weight": 1.0},
    "actmad": {"lr": 2.5e-4, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
    "delta": ENTROPY | {"lr": 2.5e-4, "norm_momentum": 0.95, "class_momentum": 0.95},
}
ON_RESNET_50: dict[str, dict[str, Any]] = {
    "pea": PEA | {"drift_limit": 2.5, "group": 32},
    "pace": {"fitness": "mean"},
    "tent": {"lr": 2.5e-4},
    "eta": {"lr": 2.5e-4},
    "rdumb": ETA | {"lr": 2.5e-4, "reset_every": 1000},
    "roid": ROID,
}
WRN, RESNEXT = ("wrn-28-10", "wrn-40-2"), ("resnext-29",)
ON_CIFAR: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    *((name, WRN + RESNEXT, ADAM) for name in ("roid", "cmf", "rmt", "santa")),
    ("rdumb", WRN + RESNEXT, ADAM | {"redundancy": 0.4}),
    ("eta", WRN, ADAM | {"redundancy": 0.4}),
    ("eta", RESNEXT, ADAM | {"redundancy": 0.1}),
    ("eata", WRN, ADAM | {"redundancy": 0.4, "fisher_weight": 1.0}),
    ("petta", WRN + RESNEXT, {"loss": "sce"}),
    ("actmad", WRN, {"lr": 1e-2}),
    ("actmad", RESNEXT, {"lr": 1e-3}),
    *((name, WRN + RESNEXT, {}) for name in ("rotta", "note", "delta")),
]


def on(name: str, model: str, family: str) -> dict[str, Any]:
    return registry.load("methods", name).presets(Target(model, family, "FP32"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_defaults_are_the_settings_published_for_imagenet(name: str) -> None:
    method = registry.load("methods", name)(**on(name, "vit-b", "vit"))
    assert {field: getattr(method, field) for field in PUBLISHED[name]} == PUBLISHED[name]


@pytest.mark.parametrize("name", ON_RESNET_50)
def test_presets_of_a_resnet_are_those_of_resnet_50(name: str) -> None:
    for model in ("resnet-50", "resnet-micro"):
        method = registry.load("methods", name)(**on(name, model, "resnet"))
        assert {field: getattr(method, field) for field in ON_RESNET_50[name]} == ON_RESNET_50[name]


@pytest.mark.parametrize(("name", "models", "wanted"), ON_CIFAR)
def test_networks_of_cifar_get_the_settings_published_for_cifar(
    name: str, models: tuple[str, ...], wanted: dict[str, Any]
) -> None:
    for model in models:
        assert on(name, model, "resnet") == wanted
        registry.load("methods", name)(**wanted)


def test_presets_of_cifar_are_those_of_its_own_networks_only() -> None:
    for name in ("roid", "cmf", "rmt", "santa", "petta", "actmad"):
        for model, family in (("resnet-50", "resnet"), ("resnet-micro", "resnet"), ("vit-micro", "vit")):
            assert on(name, model, family) == {}
    for name in ("eta", "eata", "rdumb"):
        assert on(name, "resnet-micro", "resnet") == {"lr": 2.5e-4}
        assert on(name, "vit-micro", "vit") == {}


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("eta", "optimizer", "adam"),
        ("eata", "optimizer", "adam"),
        ("rdumb", "optimizer", "adam"),
        ("tent", "weight_decay", 1e-4),
    ],
)
def test_a_field_that_was_added_later_is_in_a_key_only_if_it_changes_numbers(
    name: str, field: str, value: Any
) -> None:
    plugin = registry.load("methods", name)
    before, default, other = (
        identify("methods", name, {"lr": 1e-3} | more, plugin.version, "").key_facts
        for more in ({}, {field: getattr(plugin(), field)}, {field: value})
    )
    assert before == default != other


@pytest.mark.parametrize(
    ("name", "params", "kind", "wanted"),
    [
        ("eta", {}, torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9, "nesterov": False, "weight_decay": 0}),
        ("rdumb", ADAM, torch.optim.Adam, {"lr": 1e-3, "betas": (0.9, 0.999), "weight_decay": 0}),
        ("tent", {"loss": "im", "weight_decay": 1e-4}, torch.optim.SGD, {"weight_decay": 1e-4}),
        ("roid", {}, torch.optim.SGD, {"lr": 2.5e-4, "momentum": 0.9, "nesterov": True}),
        ("actmad", {}, torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}),
    ],
)
def test_optimizers_have_the_settings_of_the_fields(
    name: str, params: dict[str, Any], kind: type, wanted: dict[str, Any]
) -> None:
    method: GradientMethod = ready(name, registry.load("models", "vit-micro")().build(), **params)
    assert type(method.updater) is kind
    assert {field: method.updater.param_groups[0][field] for field in wanted} == wanted
