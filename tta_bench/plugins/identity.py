"""The identity of a plugin: all that its numbers depend on. Keys, caches, sharing and tables use it."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from tta_bench.plugins import registry
from tta_bench.plugins.source_code import belongs, source_hash


@dataclass(frozen=True)
class PluginIdentity:
    """A plugin with all its parameters, and hashes of the content that it reads and of its source code."""

    group: str
    use: str
    params: dict[str, Any] = field(default_factory=dict)
    version: str = "1"
    fingerprint: str = ""  # of the weights or images that it reads
    code: str = ""  # `source_hash` of its module

    @property
    def label(self) -> str:
        """Its name in messages: `method t3a`."""
        return f"{registry.singular(self.group)} {self.use}"

    def make(self) -> Any:
        """An instance of the plugin."""
        plugin = registry.load(self.group, self.use)
        return plugin(**copy.deepcopy(dict(getattr(plugin, "added", {})) | self.params))

    @cached_property
    def key_facts(self) -> dict[str, Any]:
        """The facts in a cell's key: the content of files, but neither their paths nor the code.

        An edited comment changes the code but no number. Records hold `code`, so other code is noticed.
        """
        where = getattr(registry.load(self.group, self.use), "paths", ())
        params = {name: value for name, value in self.params.items() if name not in where}
        return asdict(self) | {"params": params, "code": None}

    def without(self, *fields: str) -> PluginIdentity:
        """The identity of what does not depend on these fields."""
        kept = {name: value for name, value in self.params.items() if name not in fields}
        return replace(self, params=kept)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all that its numbers depend on, code included; it names cache entries."""
        facts = self.key_facts | {"code": self.code}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def identify(group: str, use: str, params: dict[str, Any], version: str, fingerprint: str) -> PluginIdentity:
    """The identity of an installed plugin, without fields of `Plugin.added` that change nothing."""
    added = getattr(registry.load(group, use), "added", {})
    params = {name: v for name, v in params.items() if not (name in added and v == added[name])}
    return PluginIdentity(group, use, params, version, fingerprint, code_of(group, use))


def code_of(group: str, use: str) -> str:
    """The hash of the source code of a plugin and of its base classes in our packages or its own."""
    plugin, top = registry.load(group, use), registry.find(group, use).module
    classes = getattr(plugin, "__mro__", (plugin,))
    modules = {top, *(str(getattr(each, "__module__", top)) for each in classes)}
    return source_hash(*sorted(name for name in modules if name == top or belongs(name, top)))
