"""Base class of data that corrupts its own clean images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tta_bench.api import CorruptionFunction, Data, Domain, Seed
from tta_bench.corruptions.composed import Composed, parts_of, plain_names
from tta_bench.data.corrupted.frost_images import FrostImages
from tta_bench.data.domains import domain_problems
from tta_bench.plugins import registry

FROST = "frost"


@dataclass
class CorruptedData(Data):
    """Base: corruptions from the registry, and frost from the original photographs if they are given."""

    paths: ClassVar[tuple[str, ...]] = ("frost_images",)

    corruption_seed: Seed = 0  # of the random numbers of corruptions
    frost_images: str = ""  # folder with the original photographs; else a procedural texture is used

    def corruption(self, name: str) -> CorruptionFunction:
        """The function that corrupts images."""
        if parts := parts_of(name):
            return Composed(tuple((part, self.corruption(part.name)) for part in parts))
        if self._from_photographs(name):
            return self._photographs.corruption
        return registry.load("corruptions", name)

    @abstractmethod
    def new_corrupted(self, domain: Domain) -> Any:
        """The reader of the corrupted images of a domain."""

    def corrupted(self, domain: Domain) -> Any:
        """The reader of a domain, kept: a look-up in the registry takes longer than reading a batch."""
        if domain not in self._corrupted:
            self._corrupted[domain] = self.new_corrupted(domain)
        return self._corrupted[domain]

    @cached_property
    def _corrupted(self) -> dict[Domain, Any]:
        return {}

    def domain_fingerprint(self, domain: Domain) -> str:
        """SHA-256 over the photographs used for the domain; empty if none are used."""
        return self._photographs.digest() if self._from_photographs(domain.corruption) else ""

    def domain_note(self, domain: Domain) -> str:
        """Which frost images were used."""
        if FROST not in plain_names(domain.corruption):
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
        return FROST in plain_names(name) and self.frost_images != ""

    @cached_property
    def _photographs(self) -> FrostImages:
        return FrostImages(self.frost_images)
