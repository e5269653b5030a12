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
    assert (petta.stream.rounds, petta.stream.domain_order, petta.stream.straddle) == (20, ["cotta 5"], True)
    (correlated,) = petta.scenarios
    assert correlated.params["gamma"] == 0.1
    gradual = config.load(write_yaml(stream={"protocol": "cotta-gradual"}))
    assert {cell.records_expected for cell in grid.expand(gradual)} == {131}
    assert len({cell.domains for cell in grid.expand(gradual)}) == 10


# Images in a batch, rounds, reset, order, borders crossed, seeds.
FACTS: dict[str, tuple[int, int, str, str, bool, tuple[int, ...]]] = {
    "tent": (64, 1, "domain", "shuffled", False, ()),
    "cotta": (64, 1, "never", "sequential", False, ()),
    "cotta-gradual": (200, 1, "never", "sequential", False, ()),
    "zoa": (64, 10, "never", "shuffled", False, ()),
    "fozo-5k": (64, 1, "never", "shuffled", False, (2000,)),
    "roid-continual": (64, 1, "never", "aligned", False, (1, 2, 3, 4, 5)),
    "roid-mixed": (64, 1, "never", "shuffled", False, (1, 2, 3, 4, 5)),
    "roid-correlated": (64, 1, "never", "aligned", False, (1, 2, 3, 4, 5)),
    "roid-mixed-correlated": (64, 1, "never", "shuffled", False, (1, 2, 3, 4, 5)),
    "ptta": (64, 1, "never", "shuffled", True, ()),
    "petta-20": (64, 20, "never", "reshuffled", True, (2020,)),
    "note": (1, 1, "domain", "shuffled", False, (0, 1, 2)),
    "sar-mix": (64, 1, "never", "shuffled", False, (2021,)),
    "sar-imbalance": (64, 1, "domain", "aligned", False, (2021, 2022, 2023)),
    "sar-bs1": (1, 1, "domain", "shuffled", False, (2021,)),
    "delta-ds-ci": (64, 1, "domain", "aligned", False, (2020,)),
    **{f"snap-{rate}": (16, 1, "never", "shuffled", False, (0, 1, 2)) for rate in ("0.01", "0.3")},
    **{f"unitta-{name}": (64, 1, "never", "shuffled", True, (425,)) for name in ("i1i1", "nu1u")},
}
SCENARIOS: dict[str, dict[str, object]] = {
    "roid-correlated": {"use": "correlated", "sampler": "sorted"},
    "roid-mixed-correlated": {"use": "correlated", "sampler": "note", "gamma": 0.01, "mixed": True},
    "ptta": {"use": "correlated", "sampler": "rotta", "gamma": 0.1},
    "note": {"use": "correlated", "sampler": "note", "gamma": 0.1},
    "sar-imbalance": {"use": "imbalanced", "sampler": "sar", "ratio": 500_000},
    "cotta-gradual": {"use": "gradual", "first_from_the_top": True},
}


@pytest.mark.parametrize("name", FACTS)
def test_streams_are_those_of_the_papers(name: str, write_yaml: Callable[..., Path]) -> None:
    protocol = PROTOCOLS[name]
    stream = config.load(write_yaml(stream={"protocol": name})).stream
    found = (stream.batch_size, stream.rounds, stream.reset, stream.order, stream.straddle, protocol.seeds)
    size, *others = FACTS[name]
    assert found == ([size], *others)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_are_those_of_the_papers(name: str) -> None:
    assert PROTOCOLS[name].stream["scenario"] == SCENARIOS[name]


def test_rates_of_snap_are_numbers_of_batches() -> None:
    rates = {name: PROTOCOLS[name].stream["adapt_every"] for name in PROTOCOLS if name.startswith("snap-")}
    expected = {"0.01": 100, "0.03": 33, "0.05": 20, "0.1": 10, "0.3": 3, "0.5": 2}
    assert rates == {f"snap-{rate}": batches for rate, batches in expected.items()}


def test_a_protocol_of_resets_keeps_the_stream_of_another(write_yaml: Callable[..., Path]) -> None:
    both = config.load(write_yaml(stream={"protocol": ["roid-mixed", "rdumb"]}))
    assert both.stream.reset == "every 1000"
    assert [choice.use for choice in both.scenarios] == ["mixed"]
    reduced = shrunk(both)
    assert reduced.stream.reset == "every 5"
    assert "stream.reset is every 5, not every 1000" in reduced.reduced
