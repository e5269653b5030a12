"""Orders of the domains as an axis: a cell for each order, with the key that it has alone."""

from __future__ import annotations

from typing import Any

import pytest

from tta_bench import config, grid
from tta_bench.corruptions.sets import IMAGENET_C_15
from tta_bench.errors import ConfigError
from tta_bench.grid import Cell
from tta_bench.streams.names import name_of, without_order
from tta_bench.streams.schedules.cotta_orders import COTTA_ORDERS

FILE: dict[str, Any] = {
    "name": "orders",
    "data": "cifar10-mini",
    "models": ["vit-micro"],
    "methods": ["source", "tent"],
    "stream": {"rounds": 1, "limit": 64},
}
ORDERS: list[Any] = ["file", "per-seed", "per-round", {"cotta": 3}]


def cells(**stream: Any) -> list[Cell]:
    return grid.expand(config.parse(FILE | {"stream": FILE["stream"] | stream}))


def test_every_order_makes_cells_of_its_own() -> None:
    found = cells(domain_order={"cotta": "all"})
    assert len(found) == len({cell.key for cell in found}) == 2 * 10
    assert found[0].labels.stream == "domain order cotta 0"
    assert [tuple(name for name, _ in cell.domains) for cell in found[:10]] == list(COTTA_ORDERS)


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_among_others_has_the_key_that_it_has_alone(order: Any) -> None:
    alone = {cell.key for cell in cells(domain_order=order)}
    listed = {cell.key for cell in cells(domain_order=ORDERS)}
    assert len(listed) == 2 * len(ORDERS)
    assert alone <= listed


def test_without_the_axis_keys_do_not_know_of_orders() -> None:
    plain, file = cells(), cells(domain_order=["file"])
    assert [cell.key for cell in plain] == [cell.key for cell in file]
    assert {cell.labels.stream for cell in (*plain, *file)} == {""}
    assert "domain_order" not in grid.row_of(plain[0])
    written = cells(corruptions=list(COTTA_ORDERS[3]))
    assert [cell.key for cell in cells(domain_order={"cotta": 3})] == [cell.key for cell in written]


def test_some_corruptions_have_the_orders_that_differ() -> None:
    with pytest.raises(ConfigError, match=r"{cotta: 0}, {cotta: 1}"):
        cells(corruptions=list(IMAGENET_C_15[:3]), domain_order={"cotta": "all"})
    assert len(cells(corruptions=list(IMAGENET_C_15[:3]), domain_order=[{"cotta": 0}, {"cotta": 1}])) == 4


def test_orders_are_the_last_part_of_a_streams_name() -> None:
    found = cells(domain_order=["file", "per-seed"], severity=[3, 5])
    names = dict.fromkeys(cell.labels.stream for cell in found)
    assert [without_order(name) for name in names] == [
        (f"severity {severity}", order) for severity in (3, 5) for order in ("file", "per-seed")
    ]
    assert without_order("mixed, batch size 8") == ("mixed, batch size 8", "")
    assert without_order(name_of(("domain order", "cotta 0", "ab"))) == ("", "cotta 0")


def test_a_method_that_joins_batches_is_reset_after_as_many_images() -> None:
    """Before: after as many batches, which are larger than those of the other methods."""
    methods = ["tent", {"use": "foa", "interval": 8, "predictions": "deferred"}]
    for every, own in ((16, "every 2"), (17, "every 3"), (8, "batch"), (3, "batch")):
        stream = {"batch_size": 1, "reset": {"every": every}}
        tent, foa = grid.expand(config.parse(FILE | {"methods": methods, "stream": stream}))
        assert (tent.batch_size, tent.reset) == (1, f"every {every}")
        assert (foa.batch_size, foa.reset) == (8, own)
