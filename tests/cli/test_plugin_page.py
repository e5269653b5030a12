"""`tta-bench list GROUP NAME` describes every parameter of a plugin."""

from __future__ import annotations

import json

import pytest

from tests.helpers.command import tta_bench
from tta_bench.plugins import registry
from tta_bench.plugins.ranges import field_types

GROUPS = [group for group in registry.GROUPS if group != "corruptions"]


def test_zoa_is_described_with_type_default_range_line_and_presets() -> None:
    text = tta_bench("list", "methods", "zoa").stdout
    (line,) = [line for line in text.splitlines() if line.startswith("lr ")]
    assert " ".join(line.split()) == "lr number 0.0005 ≥ 0 learning rate of ε"
    (preset,) = [line for line in text.splitlines() if line.startswith("  share_prefix: false on ")]
    assert {"resnet-50", "resnet-micro"} <= set(preset.partition(" on ")[2].split(", "))
    assert "vit" not in preset
    rows = json.loads(tta_bench("list", "methods", "zoa", "--json").stdout)["parameters"]
    lr = next(row for row in rows if row["parameter"] == "lr")
    assert {"resnet-50 W6A6/W4A4", "vit-b W4A4"} <= set(lr["presets"]["5e-05"])
    assert "0.0005" not in lr["presets"], "the default is no change"


@pytest.mark.parametrize(("group", "name"), [(g, n) for g in GROUPS for n in registry.names(g)])
def test_every_parameter_of_every_plugin_is_described(group: str, name: str) -> None:
    rows = json.loads(tta_bench("list", group, name, "--json").stdout)["parameters"]
    assert [row["parameter"] for row in rows] == list(field_types(registry.load(group, name)))
    assert all(row["what"] and row["type"] for row in rows)


def test_mistakes_are_explained() -> None:
    assert 'Did you mean "methods"?' in tta_bench("list", "method", "zoa").stderr
    assert 'Did you mean "tent"?' in tta_bench("list", "methods", "tnet").stderr
