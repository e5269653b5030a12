"""Where ZOA's released code differs from its paper. Nothing else in this package asks for the variant."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

DOMAIN_KEEP = 0.8  # weight of the old domain statistics when a batch is taken into them


@dataclass(frozen=True)
class Differences:
    """One fact for each difference; the defaults are those of the corrected variant."""

    # Domain statistics take a batch in with each of its passes, not once.
    statistics_in_every_pass: bool = False
    # On feature maps, the shift detection sees the clean images before the stream.
    detects_from_source: bool = False
    # Smallest batch that is looked at for shifts. None: as large as the stream's first batch.
    min_batch: int | None = None
    # On feature maps, the target of activation shifting is the last number of the source mean.
    scalar_shift_target: bool = False
    # The first batch of a new domain is still shifted by the history of the old domain.
    shifts_by_old_domain: bool = False
    # Removing a vector leaves its row of similarities in place, so later vectors read wrong rows.
    stale_similarities: bool = False
    # Similarity where there is no pair. At zero, it wins over pairs of negative similarity.
    no_pair: float = float("-inf")
    # Adam starts afresh at every step, which makes each step −lr·sign(ĝ).
    clears_adam: bool = False

    def domain_keep(self, passes: int) -> float:
        """Weight of the old domain statistics after a batch of so many passes."""
        return DOMAIN_KEEP ** (passes if self.statistics_in_every_pass else 1)


CORRECTED = Differences()
RELEASED = Differences(
    statistics_in_every_pass=True,
    detects_from_source=True,
    min_batch=64,
    scalar_shift_target=True,
    shifts_by_old_domain=True,
    stale_similarities=True,
    no_pair=0.0,
    clears_adam=True,
)
DIFFERENCES = MappingProxyType({"corrected": CORRECTED, "released": RELEASED})
