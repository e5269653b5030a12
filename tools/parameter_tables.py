"""Write the tables of parameters and ranges into the pages of docs/, from the classes.

python tools/parameter_tables.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from generated import replaced
from generated import table as markdown_table

from tta_bench.config.parameters import describe_fields
from tta_bench.plugins import registry

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {name: DOCS / f"{name}.md" for name in ("methods", "quantizers", "streams")}


def page(group: str) -> str:
    """The page of a group, with its table as the classes have it now."""
    return replaced(PAGES[group].read_text("utf-8"), f"parameters of {group}", table(group))


def table(group: str) -> str:
    """The Markdown table of a group's plugins."""
    heads = ["name", "smallest batch", "parameters"] if group == "methods" else ["name", "parameters"]
    rows = []
    for name in registry.built_in(group):
        plugin: Any = registry.load(group, name)
        smallest = [str(plugin.min_batch_size)] if group == "methods" else []
        rows.append([f"`{name}`", *smallest, _parameters(plugin)])
    return markdown_table(heads, rows)


def _parameters(plugin: Any) -> str:
    fields = [field for field in describe_fields(plugin) if field["parameter"] != "seed"]
    texts = [f"`{field['parameter']}` {field['range']}".replace("|", "\\|") for field in fields]
    return "; ".join(texts) or "none"


if __name__ == "__main__":
    for group, path in PAGES.items():
        path.write_text(page(group), "utf-8")
        print(path)
