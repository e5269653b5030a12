"""Write the tables of parameters and protocols into the pages of docs/, from the classes.

python tools/parameter_tables.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from generated import replaced
from generated import table as markdown_table

from tta_bench.config.parameters import describe_fields
from tta_bench.config.protocols import PROTOCOLS
from tta_bench.plugins import registry

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {name: DOCS / f"{name}.md" for name in ("methods", "quantizers", "streams")}


def page(group: str) -> str:
    """The page of a group, with its tables as the classes have them now."""
    text = replaced(PAGES[group].read_text("utf-8"), f"parameters of {group}", table(group))
    if group != "streams":
        return text
    return replaced(replaced(text, "protocols", protocols()), "images of protocols", images_of_protocols())


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


def protocols() -> str:
    """The Markdown table of the values that each protocol sets, without the families of protocols."""
    heads = ["scenario", "batch_size", "rounds", "reset", "also", "seeds"]
    rows = []
    for name, protocol in PROTOCOLS.items():
        if name == _family(name):
            stream = {"scenario": "continual" if "rounds" in protocol.stream else ""} | dict(protocol.stream)
            fields = [_shown(stream.pop(head, "")) for head in heads[:4]]
            also = ", ".join(
                key if value is True else f"{key} {_shown(value)}" for key, value in stream.items()
            )
            rows.append([f"`{name}`", *fields, also, ", ".join(map(str, protocol.seeds))])
    return markdown_table(["protocol", *heads], rows)


def images_of_protocols() -> str:
    """The Markdown table of the papers of each protocol, and of the images that they use."""
    families = {_family(name): protocol for name, protocol in PROTOCOLS.items()}
    rows = [[f"`{name}`", protocol.papers, protocol.images] for name, protocol in families.items()]
    return markdown_table(["protocol", "papers", "images"], rows)


def _family(name: str) -> str:
    """What the page calls a protocol: families of protocols have one name."""
    first = name.partition("-")[0]
    return {"snap": "snap-RATE", "unitta": "unitta-ABCD"}.get(first, name)


def _shown(value: Any) -> str:
    """A value of a protocol, as the page writes it."""
    if not isinstance(value, dict):
        return str(value).lower()
    if "use" in value:
        params = ", ".join(f"{key} {_shown(each)}" for key, each in value.items() if key != "use")
        return f"{value['use']} ({params})"
    ((key, each),) = value.items()
    return f"{key} {each}" if key == "every" else f"{{{key}: {each}}}"


if __name__ == "__main__":
    for group, path in PAGES.items():
        path.write_text(page(group), "utf-8")
        print(path)
