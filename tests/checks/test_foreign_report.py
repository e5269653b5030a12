"""`tta-bench quantize` reports on a third party's quantizer, which imports nothing but the plugin API."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from tta_bench.api import Model
from tta_bench.cli import app
from tta_bench.models.micro import ResNetMicro, VitMicro

FOREIGN = '''
from dataclasses import dataclass

import torch
from torch import nn

from tta_bench.api import Bits, Quantizer

STEP = 1 / 64


class Rounded(nn.Module):
    """A layer of its own, without a weight that could be compared."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer((x / STEP).round() * STEP)


@dataclass
class Rounding(Quantizer):
    """Rounds the blocks' weights; the classifier becomes a module of its own."""

    calibration_images = 0
    bits: str = "W8A32"

    def calibrate(self, model, images, progress):
        return {}

    def apply(self, model, calibration):
        for module in model.blocks.modules():
            if isinstance(module, nn.Linear):
                module.weight = nn.Parameter((module.weight / STEP).round() * STEP)
        model.net.head = Rounded(model.net.head)

    def packed_bytes(self, model):
        return 1

    def site_bits(self, model):
        return {"head": Bits(32, 4)}
'''


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of an installed package with a quantizer called `rounding`."""
    (tmp_path / "foreign_rounding.py").write_text(FOREIGN)
    facts = tmp_path / "foreign_rounding-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-rounding\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[tta_bench.quantizers]\nrounding = foreign_rounding:Rounding\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import foreign_rounding

    yield foreign_rounding
    del sys.modules["foreign_rounding"]


def test_a_foreign_quantizer_has_a_report(foreign: Any) -> None:
    command = ["quantize", "--model", "vit-micro", "--quantizer", "rounding", "--json"]
    outcome = CliRunner().invoke(app, command)
    assert outcome.exit_code == 0, outcome.output
    rows = {row["site"]: row for row in json.loads(outcome.stdout)["report"]}
    layers = {n for n, m in VitMicro().build().net.named_modules() if isinstance(m, nn.Linear)}
    assert rows.keys() == layers
    head = rows.pop("head")
    assert (head["weight_bits"], head["activation_bits"], head["weight_snr_db"]) == (32, 4, None)
    assert all((row["weight_bits"], row["activation_bits"]) == (8, 32) for row in rows.values())
    assert all(10 < row["weight_snr_db"] < 60 for row in rows.values())
    assert all(3 < row["output_snr_db"] < 60 for row in [*rows.values(), head])
    assert all(row["clip_rate"] is None for row in rows.values())
    text = CliRunner().invoke(app, command[:-1]).output
    assert "blocks.0.attn.qkv" in text


def test_the_report_leaves_both_models_as_they_are(foreign: Any) -> None:
    images, floating = torch.rand(4, 3, 32, 32), VitMicro().build()
    quantised = foreign.Rounding().install(VitMicro().build(), {})
    before = quantised(images), floating(images)
    foreign.Rounding().report(quantised, floating, images)
    assert torch.equal(quantised(images), before[0])
    assert torch.equal(floating(images), before[1])
    assert not any(m._forward_hooks for model in (quantised, floating) for m in model.modules())


def test_a_replaced_block_stands_for_its_layers(foreign: Any) -> None:
    class Negated(nn.Module):
        def __init__(self, block: nn.Module) -> None:
            super().__init__()
            self.run = [block]  # in a list: its modules are not part of the network

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -self.run[0](x)

    floating, images = ResNetMicro().build(), torch.rand(4, 3, 32, 32)
    quantised: Model = ResNetMicro().build()
    quantised.net.layer4[1] = Negated(quantised.net.layer4[1])
    (row,) = foreign.Rounding().report(quantised, floating, images)
    assert row.site == "layer4.1"
    assert row.weight_snr_db is None
    assert row.output_snr_db == pytest.approx(-20 * math.log10(2), abs=1e-3)  # the error is twice the signal
    assert foreign.Rounding().report(floating, floating, images) == []
