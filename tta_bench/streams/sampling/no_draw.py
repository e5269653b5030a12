"""Streams that cannot be drawn: too long to hold, or no draw meets the conditions of a sampler."""

from __future__ import annotations

from tta_bench.errors import UserError

MOST_IMAGES = 10_000_000  # of a segment, whose images are arranged in main memory


class NoDraw(UserError):
    """No draw met the conditions of a sampler within its number of tries."""


def too_many(images: int) -> str | None:
    """Why a segment cannot have so many images."""
    if images <= MOST_IMAGES:
        return None
    return f"a segment would have up to {images} images, and {MOST_IMAGES} is the most."
