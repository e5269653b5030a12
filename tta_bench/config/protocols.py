"""Protocols of the literature by name: values of `stream` and `seeds` that a file need not write out.

A protocol does not choose the images: `images` says which ones the papers use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tta_bench.errors import ConfigError, Problem, suggest


@dataclass(frozen=True)
class Protocol:
    """What the papers of one protocol do; values of a benchmark file take precedence."""

    papers: str
    images: str
    stream: Mapping[str, Any]
    seeds: tuple[int, ...] = field(default=())


PROTOCOLS: Mapping[str, Protocol] = MappingProxyType(
    {
        "tent": Protocol(
            papers="TENT, EATA and FOA on ImageNet-C",
            images="all 50 000 of ImageNet's validation set",
            stream={"batch_size": 64, "rounds": 1, "reset": "domain"},
        ),
        "cotta": Protocol(
            papers="CoTTA; its ten orders of domains are domain_order {cotta: 0} to {cotta: 9}",
            images="the 5 000 images of RobustBench, in the order of their list",
            stream={
                "batch_size": 64,
                "rounds": 1,
                "order": "sequential",
                "reset": "never",
                "domain_order": {"cotta": 0},
            },
        ),
        "rdumb": Protocol(
            papers="RDumb, over any stream",
            images="any",
            stream={"batch_size": 64, "reset": {"every": 1000}},
        ),
    }
)


def with_protocol(raw: dict[str, Any], file: str) -> dict[str, Any]:
    """A raw file with the values of its protocol where it has none; ConfigError for an unknown one."""
    stream = raw.get("stream")
    if not isinstance(stream, dict) or stream.get("protocol") is None:
        return raw
    name = stream["protocol"]
    if not isinstance(name, str) or name not in PROTOCOLS:
        text = f'unknown protocol "{name}". {suggest(str(name), list(PROTOCOLS))}'
        raise ConfigError(file, [Problem("stream.protocol", text)])
    protocol = PROTOCOLS[name]
    seeds = {"seeds": list(protocol.seeds)} if protocol.seeds else {}
    return {**seeds, **raw, "stream": {**protocol.stream, **stream}}
