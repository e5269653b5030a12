"""The hash of a plugin's source code, which tells numbers of different code apart.

A third party's package is hashed as a whole. Our own packages hold many plugins, so the hash of one of ours
covers its module and the modules of `PLUGIN_PACKAGES` that it imports, directly or indirectly. The imports of
a third party's plugin are followed into these packages too, because it may subclass what is there.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tta_bench.plugins.base_classes import BASES

PLUGIN_PACKAGES = (
    "tta_bench_methods",
    "tta_bench_quantizers",
    "tta_bench.models",
    "tta_bench.data",
    "tta_bench.corruptions",
    "tta_bench.streams",
)
SUFFIXES = (".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".so", ".pyd")


@cache
def source_hash(*modules: str) -> str:
    """SHA-256 (first 16 digits) over the source files that these modules consist of."""
    digest = hashlib.sha256()
    for name, content in sorted(_sources(modules).items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _sources(modules: Iterable[str]) -> dict[str, bytes]:
    """The source files of these modules, and of all of our modules that they import, by name."""
    found: dict[str, bytes] = {}
    waiting = list(modules)
    seen = set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        next_modules = [module.rpartition(".")[0]]  # Python runs a package's __init__ before its modules
        for name, path in _own_files(module) if _is_ours(module) else _package_files(module):
            found[name] = path.read_bytes()
            if path.suffix == ".py":
                next_modules += _imports(name, found[name])
        waiting += filter(_is_ours, next_modules)
    return found


def belongs(module: str, plugin: str) -> bool:
    """Whether a module is in our plugin packages, or in the same package as a plugin's module."""
    top = plugin.partition(".")[0]
    return _is_ours(module) or (top != "tta_bench" and module.partition(".")[0] == top)


def _is_ours(module: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in PLUGIN_PACKAGES)


def _own_files(module: str) -> Iterator[tuple[str, Path]]:
    """The file of one of our modules, if there is such a module, and the C++ files that it names."""
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
    """The files of the package that a module is in, or of the module alone if it is in no package.

    A namespace package, which has no file of its own, may hold folders of other distributions: of these, only
    the folder of the module counts.
    """
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        name = ".".join(parts[:length])
        spec = find_spec(name)
        if spec is None or spec.origin is None or not spec.has_location:
            continue
        origin = Path(spec.origin)
        if spec.submodule_search_locations is None and length == 1:  # a single-file module
            yield name, origin
            return
        package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
        for path in sorted(origin.parent.rglob("*")):
            inside = path.relative_to(origin.parent)
            hidden = any(part.startswith(".") or part == "__pycache__" for part in inside.parts)
            if path.suffix in SUFFIXES and path.is_file() and not hidden:
                yield ".".join([package, *inside.with_suffix("").parts]) + path.suffix, path
        return


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
