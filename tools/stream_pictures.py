"""Draw the pictures of docs/streams.md: the class and the domain of every image of a stream.

python tools/stream_pictures.py docs/figures
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from tta_bench.api import Domain, Stream, StreamSchedule
from tta_bench.corruptions.composed import parts_of
from tta_bench.figures.style import COLOURS, STYLE
from tta_bench.plugins import registry

DOMAINS = tuple(Domain(name, 5) for name in ("gaussian_noise", "defocus_blur", "snow", "contrast"))
LABELS = np.tile(np.arange(10), 40)
SEED, BATCH = 0, 64
PICTURES: dict[str, dict[str, Any]] = {
    "continual": {},
    "mixed": {},
    "correlated-sorted": {"sampler": "sorted"},
    "correlated-note": {"sampler": "note"},
    "correlated-rotta": {"sampler": "rotta"},
    "correlated-delta": {"sampler": "delta", "gamma": 0.5},
    "correlated-mixed": {"sampler": "note", "mixed": True},
    "imbalanced-sar": {"sampler": "sar", "ratio": 50},
    "imbalanced-delta": {"sampler": "delta"},
    "imbalanced-gli": {"sampler": "gli", "ranks": "varying", "correlation": "rotta"},
    "imbalanced-zipf": {"sampler": "zipf"},
    "gradual": {},
    "markov": {"domain_stay": 0.97, "max_state": 80},
    "crossfade": {"images": 40},
}


def draw(name: str, params: dict[str, Any], folder: Path) -> None:
    """Write the picture of one scenario."""
    scenario = registry.load("streams", name.partition("-")[0])(**params)
    stream = Stream(StreamSchedule(DOMAINS, 1, SEED, scenario), BATCH, LABELS)
    classes, colours = [], []
    for index, segment in enumerate(stream.schedule.segments(1)):
        pairs = stream.pairs(1, index)
        shades = np.array([colour_of(domain) for domain in segment.domains])
        classes.append(LABELS[pairs[:, 1]])
        colours.append(shades[pairs[:, 0]])
    path = folder / f"stream-{name}.png"
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 1.3), layout="constrained")
        axes = figure.subplots()
        height = np.concatenate(classes)
        axes.scatter(
            np.arange(len(height)), height, s=5, c=np.concatenate(colours), marker="|", linewidths=0.7
        )
        axes.set(xlabel="image", ylabel="class", yticks=[0, 9], xlim=(-1, len(height)), ylim=(-0.8, 9.8))
        figure.savefig(path, dpi=100)
    Image.open(path).convert("P", palette=Image.Palette.ADAPTIVE, colors=48).save(path, optimize=True)


def colour_of(domain: Domain) -> np.ndarray:
    """The colours of its corruptions, mixed; the weaker, the paler."""
    known = {
        each.corruption: np.array(mpl.colors.to_rgb(c)) for each, c in zip(DOMAINS, COLOURS, strict=False)
    }
    parts = parts_of(domain.corruption) or ((domain.corruption, domain.severity),)
    white = np.ones(3)
    return white - sum((severity / 5) * (white - known[name]) for name, severity in parts)


if __name__ == "__main__":
    for picture, given in PICTURES.items():
        draw(picture, given, Path(sys.argv[1]))
