"""The structure of the YAML of a reference, checked before its numbers are read."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tta_bench.config.schema import Strict

Facts = dict[str, Any]


class NetworkFacts(Strict):
    """A network of a publication."""

    use: str = ""  # the plugin with its weights
    lineage: str = ""  # who trained the weights, and how images are normalised
    weights: Facts = Field({})  # parameters that the plugin must have
    other_weights: list[str] = Field([])  # plugins of the same network, whose cells are never matched
    missing: str = ""  # why no plugin has these weights


class PluginSettings(Strict):
    """Parameters of all rows of a method that match the patterns; later ones win."""

    use: str
    model: str = "*"
    table: str = "*"
    set: Facts = Field({})  # that a cell must have
    told: Facts = Field({})  # that a cell may not have, which a note then says


class PublishedTable(Strict):
    """A published table; what it does not say is as for the whole reference."""

    layout: str = ""  # of ours, which shows this table's numbers where tables print different ones
    data: str = ""
    data_by_column: bool = False  # each column is a data set of one domain
    images: int | None = None
    stream: Facts = Field({})
    metrics: dict[str, str] = Field({})  # printed names of metrics
    methods: dict[str, Facts] = Field({})
    source: str = ""
    confidence: str = ""


class Remark(Strict):
    """A text about all numbers whose facts match."""

    match: Facts
    text: str


class ReferenceFacts(Strict):
    """The YAML of a reference."""

    title: str
    source: str
    confidence: str = ""
    data: str
    stand_ins: dict[str, str] = Field({})
    images: dict[str, int]
    stream: Facts  # as in a benchmark file
    models: dict[str, NetworkFacts]
    methods: dict[str, Facts]
    settings: list[PluginSettings] = Field([])
    tables: dict[str, PublishedTable] = Field(min_length=1)
    notes: list[Remark] = Field([])
