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
from tta_bench.testing.suite import checks_in

NETWORKS = ("vit-micro", "resnet-micro", "vim-micro")
ON_A_GPU = method_checks.stays_on_its_device  # takes as long as all other checks
CHECKS = [check for check in checks_in(method_checks) if check is not ON_A_GPU]


@cache
def quantised(name: str, bits: str) -> Model:
    """A small network under the uniform quantizer."""
    model = registry.load("models", name)().build()
    return registry.load("quantizers", "uniform")(bits=bits).quantize(model, images(32))


def bench_of(name: str, network: str, bits: str) -> Bench | None:
    """A method on a quantised network; None, after a look at its reason, if it does not support it."""
    plugin, model = registry.load("methods", name), quantised(network, bits)

    def make() -> Any:
        return plugin(**(plugin.presets(model.target()) | QUICKER.get(name, {})))

    reason = make().unsupported(model)
    if plugin.backprop:
        assert reason == f"needs gradients, which {network} {bits} does not have: it is quantised"
    elif reason is not None:
        assert network in reason
    return None if reason else Bench(make, model)


@pytest.mark.parametrize("bits", ["W8A8", "W4A4"])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", registry.names("methods"))
def test_on_a_quantised_network(name: str, network: str, bits: str) -> None:
    if bench := bench_of(name, network, bits):
        for check in CHECKS:
            check(bench)


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", registry.names("methods"))
def test_on_a_quantised_network_on_a_gpu(name: str, network: str) -> None:
    if bench := bench_of(name, network, "W8A8"):
        ON_A_GPU(bench)
