"""Streams that cannot exist are refused with the grid, on a machine without a single image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tta_bench import config, grid
from tta_bench.errors import ConfigError

NOTE = {"use": "correlated", "sampler": "note"}
MARKOV = {"use": "markov", "domain_imbalance": 50, "max_state": 3}


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        ({"scenario": NOTE}, r"correlated: .*10 images"),
        ({"scenario": NOTE | {"mixed": True}, "limit": 999}, r"correlated: .*10 images"),
        ({"scenario": {"use": "imbalanced", "draws": 999}}, r"imbalanced: .*Raise `draws`"),
        ({"scenario": "imbalanced", "limit": 400}, r"imbalanced: .*Raise `draws`"),
        (
            {"scenario": MARKOV | {"domain_stay": "iid"}, "corruptions": ["fog", "snow"]},
            r"markov: the last of 2 domains .* 3 / 50 .*Raise max_state, or lower domain_imbalance",
        ),
        (
            {"scenario": MARKOV | {"domain_stay": 1.0}, "corruptions": ["fog", "snow"]},
            r"markov: .*Raise max_state, or lower domain_imbalance",
        ),
        ({"scenario": "crossfade"}, r"crossfade: .*two are needed\. Add some"),
        ({"scenario": "crossfade", "corruptions": ["clean", "fog"]}, r"crossfade: clean .*Remove it"),
    ],
)
def test_without_any_image_the_remedy_is_told(
    stream: dict[str, Any], problem: str, tmp_path: Path, write_yaml: Callable[..., Path]
) -> None:
    data = {"use": "imagenet", "root": str(tmp_path), "subset": "robustbench-5000"}
    known = {"data": data, "models": ["vit-b"], "quantizers": ["fp32"], "methods": ["source"]}
    file = write_yaml(**known, stream={"corruptions": ["fog"]} | stream)
    with pytest.raises(ConfigError, match=rf"stream\.scenario: {problem}"):
        grid.expand(config.load(file))
