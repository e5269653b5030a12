"""Protocols of the literature by name: values of `stream` and `seeds` that a file need not write out.

A protocol does not choose the images: `images` says which ones the papers use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
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


ALL = "all 50 000 of ImageNet's validation set"
LIST = "the 5 000 images of RobustBench (`subset: robustbench-5000`)"
CIFAR = "all 10 000 test images of CIFAR-10"
LIST_OR_CIFAR = f"{LIST}; CIFAR: all 10 000, batch_size 200"
ROID_SEEDS = (1, 2, 3, 4, 5)
TEN_ORDERS = {"cotta": "all"}
NEVER, AT_DOMAINS = {"rounds": 1, "reset": "never"}, {"rounds": 1, "reset": "domain"}
ALIGNED = {**NEVER, "batch_size": 64, "order": "aligned"}


def _unitta() -> dict[str, Protocol]:
    """UniTTA's 24 settings: correlation and imbalance of classes, then of domains."""
    class_stays, domain_stays = {"i": "iid", "n": 0.95}, {"i": "iid", "n": 0.85, "1": 1.0}
    found = {}
    for a, b, c, d in product(class_stays, "1u", domain_stays, "1u"):
        chain = {
            "use": "markov",
            "class_stay": class_stays[a],
            "class_imbalance": 10 if b == "u" else 1,
            "domain_stay": domain_stays[c],
            "domain_imbalance": 5 if d == "u" else 1,
        }
        found[f"unitta-{a}{b}{c}{d}"] = Protocol(
            papers="UniTTA",
            images=f"{CIFAR}; on ImageNet max_state is 100 (A and C are n), 50 (n1i1) or 10",
            stream={**NEVER, "batch_size": 64, "scenario": chain, "straddle": True},
            seeds=(425,),
        )
    return found


def _snap() -> dict[str, Protocol]:
    """SNAP's rates: the share of the batches that are adapted to."""
    every = {"0.01": 100, "0.03": 33, "0.05": 20, "0.1": 10, "0.3": 3, "0.5": 2}
    return {
        f"snap-{rate}": Protocol(
            papers="SNAP",
            images="CIFAR or ImageNet",
            stream={**NEVER, "batch_size": 16, "adapt_every": batches},
            seeds=(0, 1, 2),
        )
        for rate, batches in every.items()
    }


PROTOCOLS: Mapping[str, Protocol] = MappingProxyType(
    {
        "tent": Protocol(
            papers="TENT, EATA and FOA on ImageNet-C",
            images=ALL,
            stream={**AT_DOMAINS, "batch_size": 64},
        ),
        "cotta": Protocol(
            papers="CoTTA, which reports mean and standard deviation over ten orders of the domains",
            images=LIST_OR_CIFAR,
            stream={**NEVER, "batch_size": 64, "order": "sequential", "domain_order": TEN_ORDERS},
        ),
        "cotta-gradual": Protocol(
            papers="CoTTA, gradual; ten orders as in `cotta`",
            images=CIFAR,
            stream={
                **NEVER,
                "batch_size": 200,
                "order": "sequential",
                "domain_order": TEN_ORDERS,
                "scenario": {"use": "gradual", "first_from_the_top": True},
            },
        ),
        "zoa": Protocol(papers="ZOA", images=ALL, stream={"batch_size": 64, "rounds": 10, "reset": "never"}),
        "fozo-5k": Protocol(papers="FOZO", images=LIST, stream={**NEVER, "batch_size": 64}, seeds=(2000,)),
        "roid-continual": Protocol(
            papers="ROID, RMT, CMF and SANTA", images=LIST_OR_CIFAR, stream=ALIGNED, seeds=ROID_SEEDS
        ),
        "roid-mixed": Protocol(
            papers="ROID, mixed domains",
            images=LIST_OR_CIFAR,
            stream={**NEVER, "batch_size": 64, "scenario": "mixed"},
            seeds=ROID_SEEDS,
        ),
        "roid-correlated": Protocol(
            papers="ROID, correlated, for networks with layer or group normalisation",
            images=ALL,
            stream={**ALIGNED, "scenario": {"use": "correlated", "sampler": "sorted"}},
            seeds=ROID_SEEDS,
        ),
        "roid-mixed-correlated": Protocol(
            papers="ROID, mixed domains and correlated",
            images=f"{ALL}; gamma is 0.1 on ImageNet-D109",
            stream={
                **NEVER,
                "batch_size": 64,
                "scenario": {"use": "correlated", "sampler": "note", "gamma": 0.01, "mixed": True},
            },
            seeds=ROID_SEEDS,
        ),
        "ptta": Protocol(
            papers="RoTTA, which does not score a last batch of one image",
            images=CIFAR,
            stream={
                **NEVER,
                "batch_size": 64,
                "domain_order": {"cotta": 5},
                "straddle": True,
                "scenario": {"use": "correlated", "sampler": "rotta", "gamma": 0.1},
            },
        ),
        "petta-20": Protocol(
            papers="PeTTA; gamma is 0.01 on CIFAR-100-C",
            images=LIST_OR_CIFAR.replace(", batch_size 200", ""),
            stream={
                "batch_size": 64,
                "rounds": 20,
                "reset": "never",
                "order": "reshuffled",
                "domain_order": {"cotta": 5},
                "straddle": True,
                "scenario": {"use": "correlated", "sampler": "rotta", "gamma": 0.1},
            },
            seeds=(2020,),
        ),
        "note": Protocol(
            papers="NOTE, which leaves out images after the last full 64",
            images=CIFAR,
            stream={
                **AT_DOMAINS,
                "batch_size": 1,
                "window": 64,
                "scenario": {"use": "correlated", "sampler": "note", "gamma": 0.1},
            },
            seeds=(0, 1, 2),
        ),
        "sar-mix": Protocol(
            papers="SAR, mixed domains",
            images=ALL,
            stream={**NEVER, "batch_size": 64, "scenario": "mixed"},
            seeds=(2021,),
        ),
        "sar-imbalance": Protocol(
            papers="SAR, label shift; 100 000 draws of 50 000 images",
            images=ALL,
            stream={
                **AT_DOMAINS,
                "batch_size": 64,
                "order": "aligned",
                "scenario": {"use": "imbalanced", "sampler": "sar", "ratio": 500_000},
            },
            seeds=(2021, 2022, 2023),
        ),
        "sar-bs1": Protocol(
            papers="SAR, batches of one", images=ALL, stream={**AT_DOMAINS, "batch_size": 1}, seeds=(2021,)
        ),
        "delta-ds-ci": Protocol(
            papers="DELTA, which reports the mean over classes",
            images=ALL,
            stream={
                **AT_DOMAINS,
                "batch_size": 64,
                "order": "aligned",
                "scenario": {
                    "use": "imbalanced",
                    "sampler": "delta",
                    "tail": 0.1,
                    "correlation": "delta",
                    "gamma": 0.5,
                },
            },
            seeds=(2020,),
        ),
        **_snap(),
        **_unitta(),
        "rdumb": Protocol(
            papers="RDumb, over any stream: `protocol: [roid-mixed, rdumb]` adds its resets to those of ROID",
            images="any",
            stream={"reset": {"every": 1000}},
        ),
    }
)


def with_protocol(raw: dict[str, Any], file: str) -> dict[str, Any]:
    """A raw file with the values of its protocols where it has none; ConfigError for an unknown one."""
    stream = raw.get("stream")
    if not isinstance(stream, dict) or stream.get("protocol") is None:
        return raw
    names = stream["protocol"] if isinstance(stream["protocol"], list) else [stream["protocol"]]
    values: dict[str, Any] = {}
    seeds: dict[str, Any] = {}
    for name in names:
        if not isinstance(name, str) or name not in PROTOCOLS:
            text = f'unknown protocol "{name}". {suggest(str(name), list(PROTOCOLS))}'
            raise ConfigError(file, [Problem("stream.protocol", text)])
        values |= PROTOCOLS[name].stream
        seeds |= {"seeds": list(PROTOCOLS[name].seeds)} if PROTOCOLS[name].seeds else {}
    return {**seeds, **raw, "stream": {**values, **stream}}
