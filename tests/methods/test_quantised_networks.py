"""Every method on quantised networks: it keeps its contract, or it gives its reason."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.methods.streams import images
from tests.testing.test_contracts import QUICKER
from tta_bench.api import Model
from tta_bench.plugins import registry
from tta_bench.testing import method_checks
from tta_bench.testing.bench import Bench

CHECKS = (
    method_checks.predicts_every_sample,
    method_checks.reset_forgets,
    method_checks.state_continues,
)


@cache
def quantised(name: str, bits: str) -> Model:
    """A small network under the uniform quantizer."""
    model = registry.load("models", name)().build()
    return registry.load("quantizers", "uniform")(bits=bits).quantize(model, images(32))


@pytest.mark.parametrize("bits", ["W8A8", "W4A4"])
@pytest.mark.parametrize("network", ["vit-micro", "resnet-micro", "vim-micro"])
@pytest.mark.parametrize("name", registry.names("methods"))
def test_on_a_quantised_network(name: str, network: str, bits: str) -> None:
    plugin, model = registry.load("methods", name), quantised(network, bits)

    def make() -> Any:
        return plugin(**(plugin.presets(model.target()) | QUICKER.get(name, {})))

    reason = make().unsupported(model)
    if plugin.backprop:
        assert reason == f"needs gradients, which {network} {bits} does not have: it is quantised"
    elif reason is not None:
        assert network in reason
    else:
        bench = Bench(make, model)
        for check in CHECKS:
            check(bench)
