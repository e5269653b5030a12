"""The identity of plugins and the hash of their code, one promise at a time."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tta_bench.plugins import identity, registry, source_code
from tta_bench.plugins.identity import PluginIdentity
from tta_bench.plugins.source_code import belongs, source_hash

Packed = Callable[..., str]
TENT = PluginIdentity("methods", "tent", {"lr": 0.1, "steps": 1}, "2", "weights", "c0de")


# -- identity ---------------------------------------------------------------------------------------


def test_a_plugin_is_made_with_parameters_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load", lambda group, use: lambda **params: (group, use, params))
    params = {"betas": [1, 2]}
    group, use, given = PluginIdentity("methods", "tent", params).make()
    assert (group, use, given) == ("methods", "tent", params)
    given["betas"].append(3)
    assert params == {"betas": [1, 2]}


def test_messages_call_a_plugin_by_group_and_name() -> None:
    assert TENT.label == "method tent"
    assert PluginIdentity("data", "folder").label == "data folder"


def test_keys_hold_neither_code_nor_where_files_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load", lambda *_: SimpleNamespace(paths=("root",)))
    plugin = PluginIdentity("data", "folder", {"root": "/a", "size": 3}, "2", "sha", "c0de")
    assert plugin.key_facts == {
        "group": "data",
        "use": "folder",
        "params": {"size": 3},
        "version": "2",
        "fingerprint": "sha",
        "code": None,
    }
    assert replace(plugin, params={"root": "/b", "size": 3}).digest == plugin.digest


def test_an_added_field_is_left_out_until_it_changes_something(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = SimpleNamespace(added={"engine": "simulated"})
    monkeypatch.setattr(registry, "load", lambda *_: plugin)
    monkeypatch.setattr(identity, "code_of", lambda *_: "c0de")
    before = PluginIdentity("quantizers", "uniform", {"bits": "W8A8"}, "1", "", "c0de")

    def of(engine: str) -> PluginIdentity:
        return identity.identify("quantizers", "uniform", {"bits": "W8A8", "engine": engine}, "1", "")

    assert of("simulated") == before
    assert of("torch-int8").key_facts["params"] == {"bits": "W8A8", "engine": "torch-int8"}
    assert of("torch-int8").without("engine").digest == before.digest


def test_a_plugin_is_made_with_the_value_that_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later:
        added: ClassVar[dict[str, str]] = {"engine": "simulated"}

        def __init__(self, engine: str = "another default") -> None:
            self.engine = engine

    monkeypatch.setattr(registry, "load", lambda *_: Later)
    assert PluginIdentity("quantizers", "uniform", {}).make().engine == "simulated"
    assert PluginIdentity("quantizers", "uniform", {"engine": "torch-int8"}).make().engine == "torch-int8"


def test_the_digest_is_that_of_all_facts_in_any_order() -> None:
    text = json.dumps(TENT.key_facts | {"code": "c0de"}, sort_keys=True)
    assert TENT.digest == hashlib.sha256(text.encode()).hexdigest()
    assert replace(TENT, params={"steps": 1, "lr": 0.1}).digest == TENT.digest


@pytest.mark.parametrize("fact", ["use", "params", "version", "fingerprint", "code"])
def test_every_fact_is_in_the_digest(fact: str) -> None:
    other: Any = {"lr": 0.2} if fact == "params" else "eata" if fact == "use" else "other"
    assert replace(TENT, **{fact: other}).digest != TENT.digest


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The modules that are hashed for a plugin."""
    calls: list[tuple[str, ...]] = []

    def source_hash(*modules: str) -> str:
        calls.append(modules)
        return "hash"

    monkeypatch.setattr(identity, "source_hash", source_hash)
    return calls


def _register(monkeypatch: pytest.MonkeyPatch, plugin: object, module: str) -> None:
    monkeypatch.setattr(registry, "load", lambda *_: plugin)
    monkeypatch.setattr(registry, "find", lambda *_: SimpleNamespace(module=module))


def test_the_code_of_a_plugin_is_that_of_its_base_classes_too(
    hashed: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Base classes may come from a module that no import statement names."""
    method = importlib.import_module("tta_bench_methods.tent").Tent
    plugin = type("Mine", (method,), {"__module__": "mine.inner"})
    _register(monkeypatch, plugin, "mine")
    found = identity.identify("methods", "mine", {"lr": 1}, "3", "sha")
    assert found == PluginIdentity("methods", "mine", {"lr": 1}, "3", "sha", "hash")
    assert hashed == [("mine", "mine.inner", "tta_bench_methods._shared.gradient", "tta_bench_methods.tent")]


def test_the_code_of_a_function_is_that_of_its_module(
    hashed: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _register(monkeypatch, json.dumps, "tta_bench.execution.cell.score")
    assert identity.code_of("corruptions", "mine") == "hash"
    assert hashed == [("tta_bench.execution.cell.score",)], (
        "json is not the plugin's, and its own module always counts"
    )


# -- source code ------------------------------------------------------------------------------------


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Packed:
    """Write a package and return the name that it can be imported by; names are never used twice."""
    monkeypatch.syspath_prepend(str(tmp_path))
    count = 0

    def write(files: dict[str, str], ours: bool = False) -> str:
        nonlocal count
        count += 1
        digest = hashlib.sha256(f"{request.node.name}{tmp_path}".encode()).hexdigest()[:8]
        name = f"package_{digest}_{count}"
        for path, text in files.items():
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        if ours:
            packages = (*source_code.PLUGIN_PACKAGES, name)
            monkeypatch.setattr(source_code, "PLUGIN_PACKAGES", packages)
        importlib.invalidate_caches()
        return name

    return write


def listed(module: str) -> set[str]:
    """The names of the files that a module's hash covers, without the package's own."""
    files = (
        source_code._own_files(module) if source_code._is_ours(module) else source_code._package_files(module)
    )
    package = module.partition(".")[0]
    return {name.removeprefix(package)[1:] for name, _ in files}


def test_the_hash_is_of_names_and_contents(packed: Packed) -> None:
    files = {"__init__.py": "", "a.py": "X = 1\n", "b.py": ""}
    name = packed(files)
    digest = hashlib.sha256()
    for path in ("__init__.py", "a.py", "b.py"):
        digest.update(f"{name}.{path} {len(files[path])}\n{files[path]}".encode())
    assert source_hash(f"{name}.a") == digest.hexdigest()[:16]


def test_several_modules_are_hashed_in_any_order() -> None:
    both = ("tta_bench_methods.tent", "tta_bench_methods.lame")
    assert source_hash(*both) == source_hash(*both[::-1])
    assert len({source_hash(*both), *map(source_hash, both)}) == 3


def test_a_third_party_package_is_all_of_its_source_files(packed: Packed) -> None:
    files = {
        "__init__.py": "",
        "a.py": "",
        "inner/b.py": "",
        "inner/kernel.cu": "",
        "native.so": "",
        "notes.txt": "",
        ".hidden/c.py": "",
        "inner/.d.py": "",
        "__pycache__/a.cpython-311.py": "",
    }
    name = packed(files)
    expected = {"__init__.py", "a.py", "inner.b.py", "inner.kernel.cu", "native.so"}
    assert listed(f"{name}.a") == expected
    assert listed(name) == expected


def test_a_folder_that_is_named_like_a_source_file_is_none(packed: Packed, tmp_path: Path) -> None:
    name = packed({"__init__.py": ""})
    (tmp_path / name / "folder.py").mkdir()
    assert listed(name) == {"__init__.py"}


def test_a_module_of_its_own_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("solo_module", "beside_it"):
        (tmp_path / f"{name}.py").write_text("")
    importlib.invalidate_caches()
    assert [name for name, _ in source_code._package_files("solo_module")] == ["solo_module"]


def test_of_a_namespace_package_only_the_folder_of_the_module_counts(packed: Packed) -> None:
    name = packed({"one/a.py": "", "one/b.py": "", "two/c.py": "", "three/__init__.py": "", "three/d.py": ""})
    assert listed(f"{name}.one.a") == {"one.a.py", "one.b.py"}
    assert listed(f"{name}.three.d") == {"three.__init__.py", "three.d.py"}


def test_built_in_modules_have_no_files() -> None:
    assert listed("sys") == set()
    assert listed("no_such_package") == set()


def test_ours_are_followed_from_import_to_import(packed: Packed) -> None:
    name = packed(
        {
            "__init__.py": "",
            "a.py": "from . import b\nimport json\n",
            "b.py": "def f():\n    from .inner import c\n",
            "inner/__init__.py": "",
            "inner/c.py": "from .. import a\nX = 1\n",
            "unrelated.py": "",
        },
        ours=True,
    )
    seen = source_code._sources([f"{name}.a"])
    assert seen.keys() == {f"{name}.{rest}" for rest in ("__init__", "a", "b", "inner.__init__", "inner.c")}


def test_the_init_files_of_all_parent_packages_count(packed: Packed) -> None:
    name = packed(
        {
            "__init__.py": "",
            "a.py": "from package.inner.deep.c import X\n",
            "inner/__init__.py": "from . import runs_first\n",
            "inner/runs_first.py": "",
            "inner/unrelated.py": "",
            "inner/deep/__init__.py": "",
            "inner/deep/c.py": "X = 1\n",
        },
        ours=True,
    )
    module = Path(importlib.import_module(name).__path__[0]) / "a.py"
    module.write_text(module.read_text().replace("package", name))
    expected = {"__init__", "a", "inner.__init__", "inner.runs_first", "inner.deep.__init__", "inner.deep.c"}
    assert source_code._sources([f"{name}.a"]).keys() == {f"{name}.{rest}" for rest in expected}
    outside = packed({"mine.py": f"import {name}.inner.deep.c\n"})
    assert f"{name}.inner.__init__" in source_code._sources([f"{outside}.mine"])


def test_third_parties_are_followed_into_ours(packed: Packed) -> None:
    name = packed({"__init__.py": "", "a.py": "from tta_bench_methods.lame import Lame\nimport torch\n"})
    assert "tta_bench_methods.lame" in source_code._sources([f"{name}.a"])


def test_native_code_counts_where_it_is_named(packed: Packed) -> None:
    name = packed(
        {
            "__init__.py": "",
            "a.py": "SOURCE = 'kernel.cpp'\n",
            "b.py": "",
            "kernel.cpp": "",
            "inner/__init__.py": "'other.cpp'",
            "inner/other.cpp": "",
        },
        ours=True,
    )
    assert listed(f"{name}.a") == {"a", "kernel.cpp"}
    assert listed(f"{name}.b") == {"b"}
    assert [found for found, _ in source_code._own_files(f"{name}.inner")] == [
        f"{name}.inner.__init__",
        f"{name}.inner/other.cpp",
    ]
    assert listed(f"{name}.no_module") == set()


def test_a_package_of_ours_that_is_gone_is_told(packed: Packed) -> None:
    with pytest.raises(ImportError, match="is not installed"):
        source_code._folder(packed({"left/over.py": ""}))
    with pytest.raises(ImportError, match="no_such_package_of_ours is not installed"):
        source_code._folder("no_such_package_of_ours")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a.b, c", {"a.b", "c"}),
        ("from a.b import c", {"a.b", "a.b.c"}),
        ("from . import c", {"p.q", "p.q.c"}),
        ("from .c import d", {"p.q.c", "p.q.c.d"}),
        ("from .. import c", {"p", "p.c"}),
        ("from ..c import d", {"p.c", "p.c.d"}),
        ("def f():\n    import a", {"a"}),
        ("no python", set()),
        ("a\0b", set()),
    ],
)
@pytest.mark.parametrize("module", ["p.q.m", "p.q.m.py", "p.q.__init__"])
def test_imports(source: str, expected: set[str], module: str) -> None:
    assert set(source_code._imports(module, source.encode())) == expected


def test_what_belongs_to_a_plugin() -> None:
    assert belongs("mine.b", "mine.a")
    assert belongs("mine", "mine.a")
    assert not belongs("minest", "mine.a")
    assert not belongs("torch.nn", "mine.a")
    assert belongs("tta_bench_methods.tent", "mine.a")
    assert belongs("tta_bench.models", "mine.a")
    assert not belongs("tta_bench.modelsomething", "mine.a")
    assert not belongs("tta_bench.api", "tta_bench.models.micro"), "the harness has its own version"
