"""The tree: few modules in each folder, one class for each name, and no text that names a missing file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("tta_bench", "methods", "quantizers")
MOST_MODULES_BESIDE_PACKAGES = 5
MOST_MODULES_IN_A_PACKAGE = 15

FOLDERS = "tta_bench|methods|quantizers|tests|tools|docs|recipes|bench|examples|specs"
CITED_PATH = re.compile(rf"(?<![\w./-])(?:{FOLDERS})/[\w./-]+\.(?:py|md|yaml|cpp|json|csv|txt|png)\b")
CITED_MODULE = re.compile(r"`(?!tta_bench_)(\w+\.py)`")  # tta_bench_NAME.py is what a guide's reader writes
NOT_OURS = {"main.py", "test_time.py"}  # of the repositories that README.md compares with


def sources(*folders: str) -> list[Path]:
    """Source files of these folders, without templates, each of which becomes a package of its own."""
    found = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
    return [file for file in found if file.parent.name != "templates"]


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "results" / "README.md"]


def modules(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.py") if file.name != "__init__.py")


def test_no_class_name_is_defined_twice() -> None:
    defined = defaultdict(list)
    for file in sources(*PACKAGES, "tools", "bench", "examples"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(str(file.relative_to(ROOT)))
    assert not {name: files for name, files in defined.items() if len(files) > 1}


def test_few_modules_stand_beside_the_packages() -> None:
    assert len(modules(ROOT / "tta_bench")) <= MOST_MODULES_BESIDE_PACKAGES


def test_no_package_has_too_many_modules() -> None:
    folders = {file.parent for file in sources(*PACKAGES)}
    counts = {str(folder.relative_to(ROOT)): len(modules(folder)) for folder in folders}
    assert not {name: count for name, count in counts.items() if count > MOST_MODULES_IN_A_PACKAGE}


def test_every_package_has_a_layer() -> None:
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {name.strip() for line in contracts[0]["layers"] for name in re.split(r"[|:]", line)}
    found = {f"tta_bench.{file.parent.name}" for file in (ROOT / "tta_bench").glob("*/__init__.py")}
    found |= {f"tta_bench.{Path(name).stem}" for name in modules(ROOT / "tta_bench")}
    assert layers == found | {"tta_bench_methods", "tta_bench_quantizers"}


def prose(source: str) -> Iterator[str]:
    """Comments and docstrings of a source file."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def cited(text: str) -> set[str]:
    return {path for path in CITED_PATH.findall(text) if "NAME" not in path}  # which a reader fills in


@pytest.mark.parametrize("folder", [*PACKAGES, "tests", "tools", "bench"])
def test_sources_cite_only_files_that_exist(folder: str) -> None:
    named = {
        (str(file.relative_to(ROOT)), path)
        for file in sources(folder)
        for path in cited("\n".join(prose(file.read_text(encoding="utf-8"))))
    }
    assert not {(file, path) for file, path in named if not (ROOT / path).exists()}


def test_pages_cite_only_files_that_exist() -> None:
    known = {file.name for file in sources(*PACKAGES, "tests", "tools", "bench", "examples")} | NOT_OURS
    wrong = set()
    for page in pages():
        text = page.read_text(encoding="utf-8")
        wrong |= {(page.name, path) for path in cited(text) if not (ROOT / path).exists()}
        wrong |= {(page.name, name) for name in CITED_MODULE.findall(text) if name not in known}
    assert not wrong
