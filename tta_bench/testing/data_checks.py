"""Checks of data that is on this machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tta_bench.api import Domain
from tta_bench.plugins import registry


def data_is_consistent(data: Any) -> None:
    """images and labels fit each other and are the same each time they are read."""
    labels, kept = data.test_labels(), data.classes()
    assert labels.min() >= 0, "negative label"
    assert labels.max() < (data.num_classes if kept is None else len(kept)), (
        "a label is not below the number of classes"
    )
    index = np.arange(min(4, len(labels)))
    domain = _first_domain(data)
    first = data.test_images(domain, index)
    side = data.input_size
    assert first.shape == (len(index), 3, side, side), f"images are {tuple(first.shape)}"
    source, named = data.source_images(), data.source_labels()
    assert source.shape[1:] == first.shape[1:], "source and test images differ in shape"
    assert named is None or len(named) == len(source), (
        "the number of source images and of their labels differ"
    )
    assert torch.equal(first, data.test_images(domain, index)), (
        "reading the same images twice gives different values"
    )
    assert 0 <= first.min() <= first.max() <= 1, "images must be in [0, 1]"
    assert data.fingerprint() == data.fingerprint(), "the fingerprint differs when it is computed again"


def _first_domain(data: Any) -> Domain:
    """The first domain that this data has on this machine."""
    names = registry.names("corruptions")
    domains = [Domain(name, 0) for name in ("clean", *data.own_domains())]
    domains += [Domain(name, severity) for name in names for severity in range(5, 0, -1)]
    return next(domain for domain in domains if not data.problems([domain]))
