"""The hash of a plugin's source code, so that numbers made by other code can be told apart.

A third party's package is hashed as a whole. Our own packages hold many plugins, so one of ours is known by
its module and by the modules of `PLUGIN_PACKAGES` that it imports, directly or not; other plugins follow
their imports into these packages too, because they may subclass what is there.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tta_bench.bases import BASES

PLUGIN_PACKAGES = (
    "tta_bench_methods",
    "tta_bench_quantizers",
    "tta_bench.models",
    "tta_bench.data",
    "tta_bench.corruptions",
)
SUFFIXES = (".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".so", ".pyd")


@cache
def source_hash(*modules: str) -> str:
    """SHA-256 (first 16 digits) over the source files that these modules consist of."""
    found: dict[str, bytes] = {}
    waiting = list(modules)
    seen = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        files = _own_files(module) if _is_ours(module) else _package_files(module)
        for name, path in files:
            found[name] = path.read_bytes()
            if path.suffix == ".py":
                waiting += [each for each in _imports(name, found[name]) if _is_ours(each)]
    digest = hashlib.sha256()
    for name, content in sorted(found.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def belongs(module: str, plugin: str) -> bool:
    """Whether a module is one of our plugins' or of the same package as a plugin's module."""
    top = plugin.partition(".")[0]
    return _is_ours(module) or (top != "tta_bench" and module.partition(".")[0] == top)


def _is_ours(module: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in PLUGIN_PACKAGES)


def _own_files(module: str) -> Iterator[tuple[str, Path]]:
    """The file of one of our modules, if it is one, and the C++ files that it names."""
    top, *rest = module.split(".")
    base = _folder(top).joinpath(*rest)
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            yield f"{package}.__init__" if path.name == "__init__.py" else module, path
            text = path.read_text()
            for native in sorted(path.parent.glob("*.cpp")):
                if native.name in text:
                    yield f"{package}/{native.name}", native


@cache
def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(f"{package} is not installed")
    return Path(spec.origin).parent


def _package_files(module: str) -> Iterator[tuple[str, Path]]:
    """The files of the package that a module belongs to, or the module alone if it belongs to none.

    In a namespace package, which has no file of its own, other distributions may lie beside it: only the
    folder that the module lies in is taken.
    """
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        name = ".".join(parts[:length])
        spec = find_spec(name)
        if spec is None or spec.origin is None or not spec.has_location:
            continue
        origin = Path(spec.origin)
        if spec.submodule_search_locations is None and length == 1:  # a module of its own
            yield name, origin
            return
        inside = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
        yield from _files_below(origin.parent, inside)
        return


def _files_below(folder: Path, package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in inside.parts)
        if path.suffix in SUFFIXES and path.is_file() and not hidden:
            yield ".".join([package, *inside.with_suffix("").parts]) + path.suffix, path


def _imports(module: str, source: bytes) -> Iterable[str]:
    """The names of all modules that a source file imports, anywhere in it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    package = module.removesuffix(".py").split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)  # each may be a module
            if origin == "tta_bench.api":
                yield from (BASES[alias.name] for alias in node.names if alias.name in BASES)
