"""Data that makes its corrupted images itself: which function does it, and what that function reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from tta_bench import registry
from tta_bench.api import CorruptionFunction, Data, Domain, Seed
from tta_bench.data.domains import domain_problems
from tta_bench.data.frost_images import FrostImages

FROST = "frost"


@dataclass
class Corrupting(Data):
    """Base: the corruptions of the registry, and frost by the original photographs where they are given."""

    paths: ClassVar[tuple[str, ...]] = ("frost_images",)

    corruption_seed: Seed = 0
    frost_images: str = ""  # a folder with the original photographs; else their texture is made here

    def corruption(self, name: str) -> CorruptionFunction:
        """The function that corrupts images."""
        return (
            self._photographs.corruption
            if self._from_photographs(name)
            else registry.load("corruptions", name)
        )

    def domain_fingerprint(self, domain: Domain) -> str:
        """SHA-256 over the photographs that the domain is made with; empty if there are none."""
        return self._photographs.digest() if self._from_photographs(domain.corruption) else ""

    def domain_note(self, domain: Domain) -> str:
        """Of what the frost is."""
        if domain.corruption != FROST:
            return ""
        if self.frost_images:
            return f"frost from photographs in frost_images, SHA-256 {self._photographs.digest()[:12]}"
        return "frost from a procedural texture, not from the original photographs"

    def corruption_problems(self, domains: Sequence[Domain]) -> list[str]:
        """Unknown corruptions and severities, and photographs that are missing or too small."""
        found = domain_problems(domains)
        if any(self._from_photographs(domain.corruption) for domain in domains):
            found += self._photographs.problems(self.input_size)
        return found

    def _from_photographs(self, name: str) -> bool:
        return name == FROST and self.frost_images != ""

    @cached_property
    def _photographs(self) -> FrostImages:
        return FrostImages(self.frost_images)
