"""Writes one HTML file with the data, style, scripts and the plotting library inside it."""

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
from tta_bench.files import write_atomically, write_errors

# Joined in this order into one module.
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
    "scenarios.js",
    "engines.js",
    "online.js",
    "provenance.js",
    "main.js",
)
SLOT = re.compile(r"\{\{(\w+)\}\}")


def write(data: Mapping[str, Any], path: Path) -> int:
    """Write the page to a file; returns its size in bytes."""
    if not path.parent.is_dir():
        missing = f"{path}: the folder {path.parent} does not exist."
        raise UserError(f"{missing} Make it, or choose another --output.")
    content = page(data).encode()
    with write_errors(path, "Choose another --output."):
        write_atomically(path, content)
    return len(content)


def page(data: Mapping[str, Any]) -> str:
    """The page, which needs no network and runs only the two scripts inside it."""
    import vl_convert  # slow to import, and only reports need it

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
    """JSON that an HTML parser always reads as text, whatever names it contains."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def as_script(text: str) -> str:
    """JavaScript without any text that would end the script element."""
    return re.sub(r"<(?=!--|/?script)", r"\\x3c", text.replace("\r\n", "\n"), flags=re.IGNORECASE)


def _policy(*scripts: str) -> str:
    """A content security policy that allows only these scripts, and no requests."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    rules = (
        "default-src 'none'",
        f"script-src {allowed}",
        "style-src 'unsafe-inline'",  # charts set inline styles
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _read(name: str) -> str:
    return (files("tta_bench.report") / "page" / name).read_text(encoding="utf-8")
