"""The domains that data with clean images has: `clean` and every corruption."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.api import Domain
from tta_bench.plugins import registry

CLEAN = "clean"


def domain_problems(domains: Sequence[Domain]) -> list[str]:
    """The problems of these domains, in order: problem and remedy, one sentence each."""
    return list(dict.fromkeys(text for domain in domains if (text := _problem(domain))))


def _problem(domain: Domain) -> str | None:
    if domain.corruption == CLEAN:
        return None if domain.severity == 0 else f"{domain}: clean images have severity 0 only."
    try:
        registry.find("corruptions", domain.corruption)
    except registry.UnknownPlugin as error:
        return str(error)
    if domain.severity not in range(1, 6):
        return f"{domain}: severity {domain.severity} does not exist. Use 1 to 5."
    return None
