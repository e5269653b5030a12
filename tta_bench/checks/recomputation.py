"""`tta-bench verify`: compute random domains of a results folder again, and compare.

Each cell runs alone in this process, without shared features. If one cell or a worker's state has changed the
numbers of another, or the disk has damaged them, they differ.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tta_bench.description import Description, columns
from tta_bench.errors import UserError
from tta_bench.execution.executor import Executor
from tta_bench.execution.messages import RunPolicy, Start
from tta_bench.execution.progress import RunProgress
from tta_bench.grid import AXES, Cell, cell_of
from tta_bench.planning.sharing import resolve
from tta_bench.plugins import registry
from tta_bench.plugins.identity import PluginIdentity, code_of
from tta_bench.storage.record import Record, round_and_domain
from tta_bench.storage.store import ResultStore

# Counts are whole numbers; the calibration error is a sum of floats.
COMPARED = ("fingerprint", "images", "correct", "top5_correct", "correct_per_batch", "forward_images")


@dataclass(frozen=True)
class RecomputedDomain:
    """One domain that was computed again, and its differences from the record."""

    cell: Cell
    place: tuple[Any, ...]
    differences: tuple[str, ...]


def verify(store: ResultStore, count: int, seed: int, device: str, progress: RunProgress) -> Description:
    """Compute a random domain of `count` random finished cells again; differences are listed first."""
    rows = [row for row in store.manifest()["cells"] if _finished(store, row)]
    if not rows:
        raise UserError(f"{store.folder}: no finished cell to verify. Finish a run first.")
    draw = random.Random(seed)
    cells = [cell_of(row) for row in draw.sample(rows, min(count, len(rows)))]
    for label in sorted({label for cell in cells for label in _other_code(store, cell)}):
        progress.note(f"The code of {label} has changed since; numbers may differ because of that.")
    found = [finding for cell in cells for finding in _check(store, _here(cell), draw, device, progress)]
    return _describe(store.folder, len(cells), found)


def _here(cell: Cell) -> Cell:
    """The cell with the hashes of the code on this machine."""

    def now(plugin: PluginIdentity) -> PluginIdentity:
        return replace(plugin, code=code_of(plugin.group, plugin.use))

    plugins: dict[str, Any] = {name: now(getattr(cell, name)) for name in AXES}
    scenario = None if cell.scenario is None else now(cell.scenario)
    return replace(cell, **plugins, corruptions=tuple(map(now, cell.corruptions)), scenario=scenario)


def _other_code(store: ResultStore, cell: Cell) -> list[str]:
    """The plugins whose code has changed since a cell's records were made."""
    known = (store.description(cell.key) or {}).get("code", {})
    return [p.label for p in cell.plugins if known.get(p.label) != code_of(p.group, p.use)]


def _finished(store: ResultStore, row: Record) -> bool:
    records = store.read(row["key"])
    return len(records) == row["records_expected"] and all(r["status"] == "ok" for r in records)


def _check(
    store: ResultStore, cell: Cell, draw: random.Random, device: str, progress: RunProgress
) -> Iterator[RecomputedDomain]:
    """Compute a segment of a stateless cell again; of a cell with state, the first round up to a segment."""
    with registry.asking("methods", cell.method.use):  # its parameters stand in the folder
        resolved = resolve(cell, share=False)
    wanted = draw.randrange(resolved.segments)
    others = set(range(resolved.positions)) - {wanted}
    if not resolved.stateless:
        others -= set(range(wanted))
    computed = sum(len(resolved.recorded_with(i)) for i in range(resolved.positions) if i not in others)
    progress.note(f"{cell.key}: computing {computed} of its domains")
    recorded = {round_and_domain(record): record for record in store.read(cell.key)}
    executor = Executor(RunPolicy(threads=cell.threads, device=device))
    start = Start(finished=frozenset(others), described=True)
    for delivery in executor.run([resolved], [start]):
        for record in delivery.records:
            yield RecomputedDomain(cell, round_and_domain(record), tuple(_differences(recorded, record)))


def _differences(recorded: dict[tuple[Any, ...], Record], found: Record) -> Iterator[str]:
    if found["status"] != "ok":
        yield found["reason"].strip().splitlines()[-1]
        return
    known = recorded[round_and_domain(found)]
    for name in COMPARED:
        if known[name] != found[name]:
            yield f"{name} was {known[name]} and is {found[name]}"


def _describe(folder: Path, cells: int, findings: Sequence[RecomputedDomain]) -> Description:
    wrong = [finding for finding in findings if finding.differences]
    rows = [
        {
            "cell": finding.cell.key,
            "round": finding.place[0],
            "domain": f"{finding.place[1]}-{finding.place[2]}",
            "result": "; ".join(finding.differences) or "equal",
        }
        for finding in sorted(findings, key=lambda finding: not finding.differences)
    ]
    domains = f"{len(findings)} domains of {cells} cells computed again"
    verdict = f"{len(wrong)} differ" if wrong else "all are equal"
    return Description(
        f"{folder}: {domains}, {verdict}.\n\n{columns(rows)}",
        {"folder": str(folder), "domains": len(findings), "differ": len(wrong), "findings": rows},
    )
