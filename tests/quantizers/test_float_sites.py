"""docs/quantizers.md tells what every scheme leaves in float, as quantised networks have it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.helpers.tools import load_tool
from tta_bench.models.micro import ResNetMicro
from tta_bench.plugins import registry


@pytest.fixture(scope="module")
def tool() -> Any:
    return load_tool("float_sites")


def test_the_table_is_up_to_date_and_has_every_scheme(tool: Any) -> None:
    torch.set_num_threads(1)
    assert tool.PAGE.read_text("utf-8") == tool.page(), "run `python tools/float_sites.py`"
    built_in = registry.names("quantizers")
    own = [name for name in built_in if registry.origin("quantizers", name).startswith("tta-bench ")]
    assert set(own) - {"fp32"} == set(tool.SCHEMES)


def test_a_layer_whose_input_is_not_quantised_is_found(tool: Any) -> None:
    """As with a network that does not call its input quantizer."""
    quantizer = tool.SCHEMES["uniform"]
    images = torch.rand(2, 3, 32, 32)
    model = quantizer.quantize(ResNetMicro().build(), images)
    assert tool._inputs(model, images) == []
    model.input_quantizer = torch.nn.Identity()
    assert tool._inputs(model, images) == ["conv1"]
