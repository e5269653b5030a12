"""What a cell can share: the facts of its method that decide which rounds and passes are computed."""

from __future__ import annotations

from dataclasses import dataclass

from tta_bench.api import Domain, Method
from tta_bench.api.method import passes_per_batch
from tta_bench.grid import Cell

# Features that one worker keeps on disk: three times what the 15 domains of ImageNet-C make with a ViT-B.
FEATURE_CACHE_BYTES = 8 * 2**30


@dataclass(frozen=True)
class ResolvedCell:
    """A cell and the facts of its method, as plain data; planning, workers and the recorder all read these.

    A position is the number of a domain, counted from 0 through all rounds in the order of the stream.
    """

    cell: Cell
    share: bool  # compute only once what cells or rounds have in common
    reads_features: bool  # its method takes features, not images
    stateless: bool  # across domains: the numbers of a domain do not depend on earlier domains
    equal_rounds: bool  # every round gives the numbers of the first
    resumable: bool  # a run can continue after a domain from the saved state of the method
    forwards: int  # declared passes per batch
    backwards: int

    @property
    def key(self) -> str:
        """The cell's key."""
        return self.cell.key

    @property
    def repeats(self) -> bool:
        """Whether only the first round is computed, and the others repeat its records."""
        return self.share and self.equal_rounds

    @property
    def rereads(self) -> bool:
        """Whether later rounds read the features of earlier ones again."""
        same_batches = self.cell.rounds > 1 and self.cell.order != "reshuffled"
        return self.share and same_batches and self.reads_features and not self.equal_rounds

    @property
    def positions(self) -> int:
        """How many domains are computed, over all rounds."""
        return len(self.cell.domains) * (1 if self.repeats else self.cell.rounds)

    @property
    def step_passes(self) -> int:
        """Declared passes per batch, a backward pass counted as two."""
        return self.forwards + 2 * self.backwards

    def at(self, position: int) -> tuple[int, Domain]:
        """Round (from 1) and domain at a position."""
        index, domain = divmod(position, len(self.cell.domains))
        return index + 1, Domain(*self.cell.domains[domain])

    def position(self, round: int, domain: Domain) -> int:
        """The position of a domain in a round."""
        index = self.cell.domains.index((domain.corruption, domain.severity))
        return (round - 1) * len(self.cell.domains) + index

    def recorded_at(self, position: int) -> range:
        """The positions whose records are known once this one is computed: itself and its repetitions."""
        return range(position, self.cell.records_expected, self.positions)


def resolve(cell: Cell, share: bool = True) -> ResolvedCell:
    """The facts of a cell, from an instance of its method; without `share`, nothing is computed only once."""
    method: Method = cell.method.make()
    stateless = method.memory in ("none", "batch") or cell.reset == "domain"
    forwards, backwards = passes_per_batch(method)
    return ResolvedCell(
        cell=cell,
        share=share,
        reads_features=method.consumes == "features",
        stateless=stateless,
        equal_rounds=stateless and cell.order != "reshuffled",
        resumable=method.memory != "stream" or type(method).state_dict is not Method.state_dict,
        forwards=forwards,
        backwards=backwards,
    )


def pass_identity(cell: Cell) -> tuple[object, ...]:
    """What decides the features of a stream; cells for which it is equal can share one pass."""
    stream = (cell.domains, cell.rounds, cell.batch_size, cell.limit, cell.order, cell.seed)
    plugins = (cell.data, cell.model, cell.quantizer, *cell.corruptions)
    return (*(plugin.digest for plugin in plugins), stream, cell.threads)
