"""The domains that data with clean images has: `clean`, every corruption, and what is composed of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tta_bench.api import Domain
from tta_bench.corruptions.composed import Part, parts_of
from tta_bench.plugins import registry

CLEAN = "clean"


def domain_problems(domains: Sequence[Domain]) -> list[str]:
    """The problems of these domains, in order: problem and remedy, one sentence each."""
    return list(dict.fromkeys(text for domain in domains if (text := _problem(domain))))


def composed_problems(domains: Sequence[Domain], other_data: str) -> list[str]:
    """Why published files cannot be read as these domains; `other_data` makes the images itself."""
    composed = [domain for domain in domains if parts_of(domain.corruption)]
    if not composed:
        return []
    return [
        f"{composed[0].corruption}: there are no published images of two corruptions, or of severities "
        f"between whole numbers. Use data {other_data}, which makes them."
    ]


def _problem(domain: Domain) -> str | None:
    if domain.corruption == CLEAN:
        return None if domain.severity == 0 else f"{domain}: clean images have severity 0 only."
    parts = parts_of(domain.corruption) or (Part(domain.corruption, domain.severity),)
    return next((text for part in parts if (text := _part_problem(part, domain))), None)


def _part_problem(part: Part, domain: Domain) -> str | None:
    try:
        registry.find("corruptions", part.name)
    except registry.UnknownPlugin as error:
        return str(error)
    if not 0 < part.severity <= 5:
        return f"{domain}: severity {part.severity} does not exist. Use 1 to 5."
    return _fraction_problem(part) if isinstance(part.severity, float) else None


def _fraction_problem(part: Part) -> str | None:
    """Why a corruption has no severity between whole numbers: it is tried on a small image."""
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    try:
        registry.load("corruptions", part.name)(image, part.severity, np.random.default_rng(0))
    except Exception as error:  # of any plugin
        return f"{part.name}: has no severity {part.severity:g}: {error}. Use another corruption."
    return None
