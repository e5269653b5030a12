"""Generated parts of Markdown pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def replaced(text: str, what: str, content: str) -> str:
    """A page with new content between `<!-- WHAT -->` and `<!-- end of WHAT -->`."""
    begin, end = f"<!-- {what} -->", f"<!-- end of {what} -->"
    pattern = f"{re.escape(begin)}.*{re.escape(end)}"
    return re.sub(pattern, lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
