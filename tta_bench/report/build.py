"""Data to one HTML file: template, style, scripts and the plotting library, all inside it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from tta_bench.errors import UserError
from tta_bench.store import write_atomically, writing

# Joined in this order into one module; each file's first line says what it is about.
SCRIPTS = (
    "dom.js",
    "state.js",
    "filters.js",
    "export.js",
    "leaderboard.js",
    "charts.js",
    "budget.js",
    "limits.js",
    "pareto.js",
    "rounds.js",
    "heatmap.js",
    "online.js",
    "provenance.js",
    "main.js",
)
SLOT = re.compile(r"\{\{(\w+)\}\}")


def write(data: Mapping[str, Any], path: Path) -> int:
    """Write the page to a file; its size in bytes."""
    if not path.parent.is_dir():
        missing = f"{path}: the folder {path.parent} does not exist."
        raise UserError(f"{missing} Make it, or choose another --output.")
    content = page(data).encode()
    with writing(path, "Choose another --output."):
        write_atomically(path, content)
    return len(content)


def page(data: Mapping[str, Any]) -> str:
    """The page: it asks no network, and runs no script but the two that it was made with."""
    import vl_convert  # only reports wait for it

    library = as_script(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    script = as_script("\n".join(map(_read, SCRIPTS)))
    parts = {
        "policy": _policy(library, script),
        "title": html.escape(data["title"]),
        "style": _read("style.css"),
        "data": as_data(data),
        "library": library,
        "script": script,
    }
    return SLOT.sub(lambda slot: parts[slot[1]], _read("page.html"))


def as_data(data: Mapping[str, Any]) -> str:
    """JSON that an HTML parser reads as nothing but text, whatever the names in it are."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def as_script(text: str) -> str:
    """JavaScript without anything that would end its element early."""
    return re.sub(r"<(?=!--|/?script)", r"\\x3c", text.replace("\r\n", "\n"), flags=re.IGNORECASE)


def _policy(*scripts: str) -> str:
    """A content security policy: these scripts and no others, and no requests at all."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    rules = (
        "default-src 'none'",
        f"script-src {allowed}",
        "style-src 'unsafe-inline'",  # charts set styles of their elements
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _read(name: str) -> str:
    return (files("tta_bench.report") / "page" / name).read_text(encoding="utf-8")
