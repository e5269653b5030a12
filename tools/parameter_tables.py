"""Write the tables of parameters and ranges into docs/methods.md and docs/quantizers.md, from the classes.

python tools/parameter_tables.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tta_bench import registry
from tta_bench.parameters import describe_fields

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {"methods": DOCS / "methods.md", "quantizers": DOCS / "quantizers.md"}


def page(group: str) -> str:
    """The page of a group, with its table as the classes have it now."""
    begin, end = f"<!-- parameters of {group} -->", f"<!-- end of parameters of {group} -->"
    text = PAGES[group].read_text("utf-8")
    return re.sub(
        rf"{re.escape(begin)}.*{re.escape(end)}",
        lambda _: f"{begin}\n{table(group)}\n{end}",
        text,
        flags=re.DOTALL,
    )


def table(group: str) -> str:
    """The Markdown table of a group's plugins."""
    heads = ["name", "smallest batch", "parameters"] if group == "methods" else ["name", "parameters"]
    rows = [heads, ["---"] * len(heads)]
    built_in = [n for n in registry.names(group) if registry.origin(group, n).startswith("tta-bench ")]
    for name in built_in:
        plugin: Any = registry.load(group, name)
        smallest = [str(plugin.min_batch_size)] if group == "methods" else []
        rows.append([f"`{name}`", *smallest, _parameters(plugin)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _parameters(plugin: Any) -> str:
    fields = [field for field in describe_fields(plugin) if field["parameter"] != "seed"]
    texts = [f"`{field['parameter']}` {field['range']}".replace("|", "\\|") for field in fields]
    return "; ".join(texts) or "none"


if __name__ == "__main__":
    for group, path in PAGES.items():
        path.write_text(page(group), "utf-8")
        print(path)
