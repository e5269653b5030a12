"""The benchmark files that ship with tta-bench: benchmark.yaml and the recipes."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

from tta_bench.config.json_schema import SHIPPED
from tta_bench.description import Description, columns
from tta_bench.errors import UserError, suggest

PACKAGE = Path(__file__).parents[1]
MODELINE = "# yaml-language-server: $schema="


def recipes() -> dict[str, Path]:
    """All files by name; an editable install finds them in the repository, others in the package."""
    inside = PACKAGE / "recipes"
    folder, first = (inside, inside) if inside.is_dir() else (PACKAGE.parent / "recipes", PACKAGE.parent)
    files = [first / "benchmark.yaml", *sorted(folder.glob("*.yaml"))]
    return {file.stem: file for file in files if file.is_file()}


def recipe(name: str) -> str:
    """The content of a file; its first line names the schema in this installation."""
    known = recipes()
    name = name.removesuffix(".yaml")
    if name not in known:
        raise UserError(f'recipes: no recipe "{name}". {suggest(name, list(known))}')
    head, _, rest = known[name].read_text("utf-8").partition("\n")
    return (f"{MODELINE}{SHIPPED}" if head.startswith(MODELINE) else head) + f"\n{rest}"


def describe() -> Description:
    """Every recipe with the first sentence of its comment."""
    rows = [{"recipe": name, "what": _summary(file.read_text("utf-8"))} for name, file in recipes().items()]
    return Description(columns(rows), rows)


def _summary(text: str) -> str:
    """The first sentence of a file's comment; commands in it are indented."""
    comment = (line for line in text.splitlines() if not line.startswith(MODELINE))
    sentences = (line[2:] for line in takewhile(lambda line: re.match("# [^ ]", line), comment))
    return re.split(r"(?<=[.]) ", " ".join(sentences), maxsplit=1)[0]
