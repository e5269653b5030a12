"""The packages that a run takes to the nodes of a cluster: our own, and those of the plugins that it uses.

Workers then run the code of the driver, whatever a node has installed. Plugins are found by entry points, so
the metadata of each distribution travels too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from pathlib import Path

from tta_bench.errors import UserError
from tta_bench.plugins import registry

OWN = ("tta_bench", "tta_bench_methods", "tta_bench_quantizers")
LEFT_BEHIND = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def copied(plugins: Iterable[tuple[str, str]], folder: Path) -> list[str]:
    """Copies of all packages that these plugins (group and name) need, each under its import name."""
    modules, distributions = set(OWN), {"tta-bench": distribution("tta-bench")}
    for group, use in sorted(set(plugins)):
        point = registry.find(group, use)
        modules.add(point.module.partition(".")[0])
        if point.dist is not None:
            distributions.setdefault(point.dist.name, point.dist)
    found = [_copy_of_module(name, folder) for name in sorted(modules)]
    found += [_copy_of_metadata(each, folder) for each in distributions.values()]
    return list(map(str, found))


def _copy_of_module(name: str, folder: Path) -> Path:
    """A copy of a package, or of a module that is one file."""
    spec = find_spec(name)
    places = list(spec.submodule_search_locations or []) if spec else []
    origin = spec.origin if spec else None
    if places:
        return Path(shutil.copytree(places[0], folder / name, ignore=LEFT_BEHIND))
    if origin is None or not origin.endswith(".py"):
        raise UserError(
            f"package {name}: has no Python source that could be copied to the nodes of a cluster. Install "
            "it as a package with a folder of its own."
        )
    return Path(shutil.copy(origin, folder / f"{name}.py"))


def _copy_of_metadata(found: Distribution, folder: Path) -> Path:
    """What `importlib.metadata` needs to find the entry points and the version of a distribution."""
    metadata = folder / f"{found.name.replace('-', '_')}-{found.version}.dist-info"
    metadata.mkdir()
    for name in ("METADATA", "PKG-INFO", "entry_points.txt"):
        text = found.read_text(name)
        if text is not None:
            (metadata / name.replace("PKG-INFO", "METADATA")).write_text(text)
    return metadata
