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
        (
            {"scenario": {"use": "imbalanced", "draws": 10**12}},
            r"imbalanced: .*1000000000000 images, and 10000000 is the most\. Lower `draws`",
        ),
        ({"scenario": {"use": "markov", "max_state": 10**12}}, r"markov: .*is the most\. Lower max_state"),
        (
            {
                "scenario": {"use": "markov", "domain_stay": 0.99999},
                "limit": 100,
                "corruptions": ["fog", "snow"],
            },
            r"markov: it takes 100000 images on average .* 2 domains have come, .* 2000\. Lower domain_stay",
        ),
        (
            {"scenario": MARKOV | {"domain_stay": 1.0, "max_state": 0}, "corruptions": ["fog", "snow"]},
            r"markov: .* a share of 5 / 50 ",  # 5 000 images of 1 000 classes
        ),
        (
            {
                "scenario": {"use": "markov", "domain_stay": 0.999, "class_stay": 1.0, "max_state": 1},
                "corruptions": ["fog", "snow"],
                "limit": 100,
            },
            r"markov: it takes 1000 images .* may have 200\. Lower domain_stay, or use more images",
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


def grid_of(write_yaml: Callable[..., Path], **stream: Any) -> list[grid.Cell]:
    common = {"corruptions": ["fog", "snow"], "rounds": 1, "batch_size": 1, "limit": 32}
    known = {"quantizers": ["fp32"], "methods": ["tent"]}
    return grid.expand(config.load(write_yaml(**known, stream=common | stream)))


def test_a_share_of_the_largest_class_is_not_that_of_all_images(write_yaml: Callable[..., Path]) -> None:
    """Before: it was held against all 32 images, and the cell failed with them."""
    chain = {"use": "markov", "domain_stay": 0.9, "domain_imbalance": 40, "class_stay": 0.9}
    with pytest.raises(ConfigError, match=r"a share of 4 / 40 .*Raise max_state, or lower domain_imbalance"):
        grid_of(write_yaml, scenario=chain)
    assert grid_of(write_yaml, scenario=chain | {"max_state": 40})


@pytest.mark.parametrize(
    ("stream", "longest"),
    [
        ({"window": 33}, 32),
        ({"window": 64, "scenario": "gradual"}, 32),
        ({"window": 65, "straddle": True}, 64),
        ({"window": 33, "scenario": {"use": "crossfade", "images": 20}}, 20),
    ],
)
def test_a_window_that_is_never_full_is_refused(
    stream: dict[str, Any], longest: int, write_yaml: Callable[..., Path]
) -> None:
    """Before: the method never adapted, and nothing said so."""
    with pytest.raises(
        ConfigError, match=rf"stream\.window: the longest segment has {longest} images.*Lower it"
    ):
        grid_of(write_yaml, **stream)
    assert grid_of(write_yaml, **stream | {"window": longest})


def test_a_rate_of_joined_batches_is_refused(write_yaml: Callable[..., Path]) -> None:
    """Resets come after as many images for all methods; a rate of other batches would be another rate."""
    foa = {"use": "foa", "interval": 8, "predictions": "deferred"}
    common = {"models": ["vit-micro"], "quantizers": ["fp32"], "methods": [foa]}
    stream = {"corruptions": ["fog"], "batch_size": 1, "adapt_every": 2}
    with pytest.raises(
        ConfigError, match=r'adapt_every: "foa.*" joins batches of 1 to batches of 8, .*Remove'
    ):
        grid.expand(config.load(write_yaml(**common, stream=stream)))
    assert grid.expand(config.load(write_yaml(**common, stream=stream | {"batch_size": 8})))
