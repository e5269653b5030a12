"""Outcomes of mutants → the report as JSON and Markdown, and the list of accepted survivors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mutation.generate import Mutant

KILLED = ("killed", "timeout")


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: killed, timeout, survived, not executed or accepted."""

    id: str
    place: str
    operator: str
    diff: str
    status: str
    note: str = ""  # the test that killed it, or the reason why it is accepted

    @property
    def module(self) -> str:
        """The file that was mutated."""
        return self.place.partition(":")[0]


def verdict(mutant: Mutant, status: str, note: str = "") -> Verdict:
    """The verdict on a mutant."""
    return Verdict(mutant.id, mutant.place, mutant.operator, mutant.diff, status, note)


def accepted(path: Path) -> dict[str, str]:
    """The mutants that are accepted as equivalent, with their reasons: `id reason`, one a line."""
    found = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = line.partition(" ")
        if not reason.strip():
            raise SystemExit(f"{path}:{number}: {name} has no reason. Say why the mutant is equivalent.")
        found[name] = reason.strip()
    return found


def stale(listed: dict[str, str], generated: Sequence[Mutant]) -> list[str]:
    """Accepted mutants of these modules that are no longer generated, because the code has changed."""
    ids = {mutant.id for mutant in generated}
    modules = {mutant.id.partition(":")[0] for mutant in generated}
    return [name for name in listed if name.partition(":")[0] in modules and name not in ids]


def score(verdicts: Sequence[Verdict]) -> tuple[int, int]:
    """Mutants that were killed, and those that could have been."""
    counted = [found for found in verdicts if found.status != "accepted"]
    return sum(found.status in KILLED for found in counted), len(counted)


def markdown(verdicts: Sequence[Verdict], stale_names: Sequence[str]) -> str:
    """The report for people: a line for each module, then each survivor with its diff."""
    rows = ["| module | mutants | killed | equivalent | survived | score |", "|---|---|---|---|---|---|"]
    for module in sorted({found.module for found in verdicts}):
        own = [found for found in verdicts if found.module == module]
        killed, counted = score(own)
        share = f"{100 * killed / counted:.0f} %" if counted else "–"
        rows.append(
            f"| `{module}` | {len(own)} | {killed} | {len(own) - counted} | {counted - killed} | {share} |"
        )
    survivors = [found for found in verdicts if found.status not in (*KILLED, "accepted")]
    parts = [
        f"### {found.id}\n\n{found.place}, {found.operator}: {found.status}\n\n```diff\n{found.diff}\n```\n"
        for found in survivors
    ]
    if stale_names:
        parts.append(
            "### Accepted, but no longer generated\n\n" + "\n".join(f"- {n}" for n in stale_names) + "\n"
        )
    return "\n".join(["\n".join(rows) + "\n", *parts])


def save(folder: Path, verdicts: Sequence[Verdict], stale_names: Sequence[str]) -> None:
    """Write report.json and report.md."""
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"mutants": [asdict(found) for found in verdicts], "stale": list(stale_names)}
    (folder / "report.json").write_text(json.dumps(content, indent=1))
    (folder / "report.md").write_text(markdown(verdicts, stale_names), "utf-8")


def load(folder: Path) -> list[Verdict]:
    """The verdicts of the last report; none if there is no report."""
    path = folder / "report.json"
    return [Verdict(**row) for row in json.loads(path.read_text())["mutants"]] if path.exists() else []
