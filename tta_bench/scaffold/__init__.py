"""`tta-bench new`: create a complete plugin package with working code to start from.

The templates are valid Python, so that they are linted and type-checked like other code. In them,
`plugin-name`, `plugin_module`, `PluginClass`, `plugin_object` (the class, or a corruption's function),
`plugin-kind` and `plugin-group` are placeholders.
"""

from __future__ import annotations

import re
import shutil
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import yaml

from tta_bench.errors import UserError, suggest
from tta_bench.files import write_errors
from tta_bench.plugins import registry

GROUPS = {
    "method": "methods",
    "quantizer": "quantizers",
    "model": "models",
    "timm-model": "models",
    "data": "data",
    "corruption": "corruptions",
    "scenario": "streams",
}
NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)*")
LONGEST_NAME = 40
FILES = {  # template → file of the package
    "pyproject.toml": "pyproject.toml",
    "plugin-kind.py": "plugin_module.py",
    "plugin-kind.md": "README.md",
    "plugin-kind.yaml": "benchmark.yaml",
    "contract.py": "tests/test_plugin_module.py",
}


def create(kind: str, name: str, parent: Path) -> Path:
    """Write the package of a new plugin into a new folder of `parent`; return that folder."""
    words = _words(kind, name)
    folder = parent / f"tta-bench-{name}"
    if folder.exists():
        raise UserError(f"{folder}: exists already. Choose another name, or another folder with --into.")
    templates = files("tta_bench") / "scaffold" / "templates"
    texts = {
        _filled(target, words): _filled((templates / _filled(source, words)).read_text("utf-8"), words)
        for source, target in FILES.items()
    }
    with write_errors(folder, "Choose another folder with --into."):
        _write(folder, texts)
    return folder


def next_steps(kind: str, name: str, folder: Path) -> str:
    """The commands to use the new package."""
    return (
        f'{folder}: the {kind} "{name}", a complete package. Next:\n'
        f"  cd {folder}\n"
        "  pip install -e .\n"
        f"  tta-bench check {name}\n"
        "  tta-bench run benchmark.yaml\n"
        "  tta-bench table"
    )


def _words(kind: str, name: str) -> dict[str, str]:
    """The text for each placeholder; UserError if the kind is unknown or the name cannot be used."""
    if kind not in GROUPS:
        raise UserError(f'new: unknown kind "{kind}". {suggest(kind, list(GROUPS))}')
    # YAML must read the name as text, which it does not with `on` or `null`.
    if len(name) > LONGEST_NAME or not NAME.fullmatch(name) or yaml.safe_load(name) != name:
        raise UserError(
            f'new {kind}: "{name}" cannot be a name. Use letters, digits and single dashes, a letter first, '
            f"{LONGEST_NAME} characters at most, and no YAML keyword; e.g. my-{kind}."
        )
    for group in registry.GROUPS:
        for taken in registry.names(group):
            if taken.lower() == name.lower():
                owner = registry.origin(group, taken)
                raise UserError(
                    f'new {kind}: "{taken}" in {group} is already used by {owner}. Choose another name.'
                )
    module = f"tta_bench_{name.replace('-', '_').lower()}"
    if find_spec(module) is not None:
        raise UserError(f"new {kind}: a module {module} is installed already. Choose another name.")
    # The kind at the end avoids class names such as None, or those of imported classes.
    words = f"{name}-{kind}".split("-")
    a_class, a_function = "".join(word[0].upper() + word[1:] for word in words), "_".join(words).lower()
    return {
        "plugin-name": name,
        "plugin_module": module,
        "PluginClass": a_class,
        "plugin_object": a_function if kind == "corruption" else a_class,
        "plugin-kind": kind,
        "plugin-group": GROUPS[kind],
    }


def _filled(text: str, words: dict[str, str]) -> str:
    return re.sub("|".join(words), lambda found: words[found[0]], text)


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write all files, or none."""
    folder.mkdir(parents=True)
    try:
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
