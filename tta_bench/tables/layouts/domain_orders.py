"""Layout `domain-orders`: one column per order of the domains, with mean and standard deviation over them."""

from __future__ import annotations

from dataclasses import replace

from pandas import DataFrame, Series

from tta_bench.streams.names import without_order
from tta_bench.tables.layout import ROW, ColumnSpec, LayoutInput, TableSpec, rank_of
from tta_bench.tables.table import Column

NOTE = (
    "Mean: over the orders; its interval and its ranks are about other orders and other domains of this kind "
    "(two-way, from {orders} orders; seeds are averaged first). Std: of the means of the orders."
)


def lay_out(given: LayoutInput) -> TableSpec:
    """The mean accuracy over all domains at one round, in every order of the domains."""
    streams = given.cells["stream"]
    rest, orders = (Series(part, streams.index) for part in zip(*map(without_order, streams), strict=True))
    names = tuple(orders.unique())
    faceted = given.faceted(orders, stream=rest, arrival=streams)
    columns = tuple(_of_order(faceted, name, given.round) for name in names)
    several = len(names) > 1
    return TableSpec(
        caption=f"Accuracy (%) at round {given.round} in each order of the domains{given.severity}.",
        columns=(*faceted.backprop(), *columns, *(_over(faceted, names, given.round) if several else ())),
        notes=(NOTE.format(orders=len(names)), *given.clean_note) if several else given.clean_note,
        given=faceted,
    )


def _of_order(given: LayoutInput, name: str, round_: int) -> ColumnSpec:
    """The column of one order; a benchmark with one order has no name for it."""
    group = "Order" if name else ""
    return replace(
        given.mean_accuracy(name or "accuracy", name or "Acc.", round_, name, group), citation=None
    )


def _over(given: LayoutInput, names: tuple[str, ...], round_: int) -> tuple[ColumnSpec, ...]:
    """Mean and standard deviation over the orders, and the ranks of the mean."""
    mean = replace(given.mean_accuracy("mean", "Mean", round_), facets=names, repetitions=True, citation=None)
    std = ColumnSpec(Column("std", "Std", "score"), _deviation, mean.needs, facets=names)
    return mean, std, rank_of("mean")


def _deviation(records: DataFrame, _: DataFrame) -> Series:
    """The standard deviation over orders of the means over seeds, for each row and again for each seed."""
    means = records.groupby([*ROW, "facet"])["accuracy"].mean()
    over_orders = means.groupby(["row", "facet"]).mean().groupby("row").std()
    places = means.groupby(ROW).first().index
    return Series(over_orders[places.get_level_values("row")].to_numpy(), places)
