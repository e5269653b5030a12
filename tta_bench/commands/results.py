"""A results folder in Python: tables, comparisons with published numbers, and the state of its cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tta_bench.commands.table_view import TableView
from tta_bench.description import Description
from tta_bench.errors import UserError
from tta_bench.storage.manifest import benchmarks
from tta_bench.storage.store import ResultStore

if TYPE_CHECKING:
    from pandas import DataFrame

    from tta_bench.commands.inputs import Source


class Tables:
    """Tables of a tidy frame, which is read once, when it is needed."""

    def __init__(self, read: Callable[[], DataFrame]) -> None:
        self._read = read

    @cached_property
    def frame(self) -> DataFrame:
        """The tidy frame: one row for each cell, round and domain."""
        return self._read()

    def table(self, layout: str = "long-term", **options: Any) -> TableView:
        """The table of a layout; options: round, parameter, reference, allow_mixed, caption, label."""
        from tta_bench.tables.build import build

        return TableView(build(self.frame, layout, **options))

    def best(
        self,
        *,
        max_memory: float | None = None,
        max_forwards: float | None = None,
        forward_only: bool = False,
        round: int | None = None,
    ) -> Description:
        """The most accurate rows that need at most so much memory (MiB) and so many passes per image."""
        from tta_bench.tables.limits import Limits, answer

        text = answer(self.frame, Limits(max_memory, max_forwards, forward_only), round)
        return Description(text, {"answer": text})

    def within(
        self,
        *,
        max_memory: float | None = None,
        max_forwards: float | None = None,
        forward_only: bool = False,
        round: int | None = None,
    ) -> tuple[Tables, str]:
        """Tables of the rows within these limits, and a note on what they leave out."""
        from tta_bench.tables.limits import Limits, narrowed

        frame, note = narrowed(self.frame, Limits(max_memory, max_forwards, forward_only), round)
        return Tables(lambda: frame), note

    def compare(
        self,
        reference: str | Sequence[str] = "zoa-mm25",
        *,
        table: str = "*",
        points: float = 0.5,
        percent: float = 3.0,
    ) -> Description:
        """Numbers of one or several references beside these, with verdicts; `points` is for accuracies.

        The reference `embedded` has the results of the default benchmark, with a verdict for each cell.
        """
        from tta_bench.tables.compare import Tolerance, answer
        from tta_bench.tables.references import as_names, load

        tolerance = Tolerance(points, percent)
        found = [answer(self.frame, load(name), tolerance, table) for name in as_names(reference)]
        if isinstance(reference, str) or len(found) == 1:
            return found[0]
        return Description("\n\n".join(each.text for each in found), [each.data for each in found])


class Results(Tables):
    """The results of one or several benchmarks in a results folder."""

    def __init__(self, stores: Sequence[ResultStore], earlier: bool, notes: Sequence[str] = ()) -> None:
        super().__init__(self._load)
        self.stores, self.earlier, self._notes = stores, earlier, notes

    def _load(self) -> DataFrame:
        from tta_bench.tables import frame

        return frame.load(*self.stores, earlier=self.earlier)

    def read(self) -> Results:
        """These results, after reading all records: `notes` names damaged files only then."""
        _ = self.frame
        return self

    @property
    def notes(self) -> list[str]:
        """What is not shown: other benchmarks, complete cells of earlier runs, damaged files."""
        return [*self._notes, *(text for store in self.stores for text in _omissions(store, self.earlier))]

    def status(self) -> Description:
        """State, records and accuracy so far of every cell of the first benchmark, and why any failed."""
        from tta_bench.storage.status import describe

        return describe(self.stores[0])

    def __repr__(self) -> str:
        lines = [f"{store.folder}: {len(store.manifest()['cells'])} cells" for store in self.stores]
        return "\n".join([*lines, *self.notes])


def results(
    folder: str | PathLike[str] = "results", name: str | Sequence[str] | None = None, *, earlier: bool = False
) -> Results:
    """The results of a folder; `name` selects benchmarks in it, by default the last run.

    `earlier` shows complete cells of earlier runs instead of the last run.
    """
    folder = Path(folder)
    there = benchmarks(folder)
    if not there:
        raise UserError(f"{folder}: no results here. Run `tta-bench run FILE` first, or set --results DIR.")
    names = [name] if isinstance(name, str) else list(name or there[:1])
    for each in names:
        if each not in there:
            raise UserError(f'{folder}: no benchmark "{each}". There: {", ".join(there)}.')
    several = not name and len(there) > 1
    notes = [f"{len(there)} benchmarks in {folder}; showing {there[0]}, the last run."] if several else []
    return Results([ResultStore(folder, each) for each in names], earlier, notes)


def forecast(source: Source, override: Sequence[str] = ()) -> Tables:
    """What is known of a benchmark before a run: memory, and which cells are unsupported."""
    from tta_bench.commands.inputs import grid_of
    from tta_bench.tables.forecast import forecast

    return Tables(lambda: forecast(grid_of(source, override=override).cells))


def _omissions(store: ResultStore, earlier: bool) -> list[str]:
    """Which files are damaged, and unless they are shown, how many cells earlier runs completed."""
    notes = list(store.damage.values())
    if not earlier and (found := store.earlier()):
        rounds = ", ".join(map(str, sorted({cell["rounds"] for cell in found})))
        text = f"{len(found)} complete cells of earlier runs (rounds: {rounds}) are not shown"
        notes.append(f"{store.folder}: {text}; see them with `tta-bench table --earlier`.")
    return notes
