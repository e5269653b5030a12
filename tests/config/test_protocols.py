"""Protocols of the literature: each is a stream that can be planned, and --micro makes it short."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tta_bench import config, grid
from tta_bench.config.protocols import PROTOCOLS
from tta_bench.config.smoke import shrunk

pytestmark = pytest.mark.usefixtures("no_bytes")


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_can_be_planned_when_reduced(name: str, write_yaml: Callable[..., Path]) -> None:
    benchmark = config.load(write_yaml(stream={"protocol": name}, methods=["source"]))
    for cell in grid.expand(shrunk(benchmark)):
        assert cell.records_expected > 0


def test_the_settings_of_unitta() -> None:
    names = [name for name in PROTOCOLS if name.startswith("unitta-")]
    assert len(names) == 24
    chain = PROTOCOLS["unitta-nu1u"].stream["scenario"]
    assert (chain["class_stay"], chain["class_imbalance"]) == (0.95, 10)
    assert (chain["domain_stay"], chain["domain_imbalance"]) == (1.0, 5)


def test_published_numbers(write_yaml: Callable[..., Path]) -> None:
    petta = config.load(write_yaml(stream={"protocol": "petta-20"}))
    assert (petta.stream.rounds, petta.stream.domain_order, petta.stream.straddle) == (20, "cotta 5", True)
    (correlated,) = petta.scenarios
    assert correlated.params["gamma"] == 0.1
    gradual = config.load(write_yaml(stream={"protocol": "cotta-gradual"}))
    assert {cell.records_expected for cell in grid.expand(gradual)} == {131}
