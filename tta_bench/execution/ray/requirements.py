"""What a node must have before it computes cells, and the examination that runs on it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tta_bench.api import Domain
from tta_bench.errors import UserError
from tta_bench.execution.ray.versions import versions
from tta_bench.grid import Cell
from tta_bench.plugins import registry
from tta_bench.plugins.identity import PluginIdentity, code_of

FREE_BYTES = 2**30  # features and corrupted images are kept on disk


@dataclass(frozen=True)
class DataContent:
    """Data, the domains that are read of it, and a hash of their images."""

    data: PluginIdentity
    domains: tuple[Domain, ...]
    images: str


@dataclass(frozen=True)
class Requirements:
    """The driver's versions, and the plugins of the run with all that their numbers depend on."""

    versions: dict[str, str]
    plugins: tuple[PluginIdentity, ...]
    data: tuple[DataContent, ...]


def requirements(cells: Iterable[Cell]) -> Requirements:
    """What the nodes that run these cells must have."""
    found = list(cells)
    plugins = {(each.group, each.use, each.digest): each for cell in found for each in cell.plugins}
    read: dict[str, tuple[PluginIdentity, set[Domain]]] = {}
    for cell in {(each.data.digest, each.labels.stream, each.seed): each for each in found}.values():
        read.setdefault(cell.data.digest, (cell.data, set()))[1].update(cell.visited)
    data = [(plugin, tuple(sorted(domains, key=str))) for plugin, domains in read.values()]
    content = tuple(DataContent(plugin, domains, _images(plugin, domains)) for plugin, domains in data)
    return Requirements(versions(), tuple(plugins.values()), content)


def _images(plugin: PluginIdentity, domains: Iterable[Domain]) -> str:
    """A hash of the images of these domains, and of those that belong to no domain."""
    with registry.asking(plugin.group, plugin.use):
        data = plugin.make()
        return "/".join([data.fingerprint(), *map(data.domain_fingerprint, domains)])


def problems(wanted: Requirements, device: str) -> list[str]:
    """Why this node cannot run the cells, each with a remedy; without any, it can."""
    found = []
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < FREE_BYTES:
        found.append(f"{tempfile.gettempdir()} has {free / 2**30:.1f} GiB free. Make room for at least 1 GiB")
    # Without a plugin, the rest would fail for the same reason.
    return found or _without_gpu(device) or [*_other_code(wanted)] or [*_other_content(wanted)]


def _without_gpu(device: str) -> list[str]:
    """The problem of a worker that has a GPU by Ray and none by PyTorch."""
    import torch

    if device != "gpu" or torch.cuda.is_available():
        return []
    return ["Ray counts a GPU, and PyTorch sees none. Install a CUDA build of PyTorch, or use --device cpu"]


def _other_code(wanted: Requirements) -> Iterator[str]:
    """Plugins that are missing here, or have other code than the driver's."""
    for plugin in wanted.plugins:
        try:
            code = code_of(plugin.group, plugin.use)
        except UserError as error:
            yield str(error).rstrip(".")
            continue
        if code != plugin.code:
            yield (
                f"the code of {plugin.label} differs from that of the run. Remove it from the node's working "
                "directory, or update it"
            )


def _other_content(wanted: Requirements) -> Iterator[str]:
    """Weights and images that are missing here, or differ from the driver's."""
    for plugin in wanted.plugins:
        if plugin.group == "models":
            with registry.asking(plugin.group, plugin.use):
                made = plugin.make()
                missing = [text.rstrip(".") for text in made.problems()]
                differs = not missing and made.fingerprint() != plugin.fingerprint
            yield from missing
            if differs:
                yield f"the weights of {plugin.label} differ from those of the run. Copy them there"
    for content in wanted.data:
        with registry.asking(content.data.group, content.data.use):
            missing = [text.rstrip(".") for text in content.data.make().problems(content.domains)]
        yield from missing
        if not missing and _images(content.data, content.domains) != content.images:
            yield f"the images of {content.data.label} differ from those of the run. Copy them there"
