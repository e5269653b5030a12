"""What makes a number is in its identity: parameters, content and code; and one computation has one key."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SMALL
from tta_bench import config, grid
from tta_bench.execution import run
from tta_bench.execution.executor import Executor
from tta_bench.execution.messages import RunPolicy, Start
from tta_bench.execution.progress import RunProgress
from tta_bench.planning.sharing import resolve
from tta_bench.plugins import registry, source_code
from tta_bench.plugins.identity import code_of
from tta_bench.plugins.source_code import source_hash
from tta_bench.storage.store import ResultStore

pytestmark = pytest.mark.usefixtures("no_bytes")

PLUGINS = {
    "tta_bench.methods": "tweaked-method = mine.method:Tweaked",
    "tta_bench.quantizers": "tweaked-quantizer = mine.quantizer:Tweaked",
    "tta_bench.models": "tweaked-model = mine.model:Tweaked",
    "tta_bench.corruptions": "tweaked = mine.corruption:tweaked",
}
MODULES = {
    "method": """
from mine.helper import AMOUNT
from tta_bench_methods.source import NoAdaptation
class Tweaked(NoAdaptation):
    def step(self, x):
        return super().step(x).roll(AMOUNT, 1)
""",
    "helper": "AMOUNT = 0\n",
    "quantizer": """
from dataclasses import dataclass
from tta_bench_quantizers.uniform import UniformQuantizer
GAIN = 1.0
class Tweaked(UniformQuantizer):
    def calibrate(self, model, images, *rest):
        found = super().calibrate(model, images, *rest)
        return {name: t * GAIN if name.endswith("scale") else t for name, t in found.items()}
""",
    "model": """
from dataclasses import dataclass
from tta_bench.models.micro import ResNetMicro
@dataclass
class Tweaked(ResNetMicro):
    gain: float = 1.0
    def build(self):
        model = super().build()
        model.classifier.weight.data *= self.gain + OFFSET
        for norm in model.batch_norms():
            norm.eps = 1e-5 + abs(self.gain - 1)
        return model
OFFSET = 0.0
""",
    "corruption": """
VERSION = "1"
def tweaked(image, severity, rng):
    return image // DIVISOR
DIVISOR = 1
""",
}
EDITS = {
    "method": ("helper", "AMOUNT = 0", "AMOUNT = 1"),
    "quantizer": ("quantizer", "GAIN = 1.0", "GAIN = 9.0"),
    "model": ("model", "OFFSET = 0.0", "OFFSET = -2.0"),
    "corruption": ("corruption", "DIVISOR = 1", "DIVISOR = 9"),
}


class Package:
    """A plugin package on the path that can be edited as its author would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "mine"
        self.folder.mkdir()
        (self.folder / "__init__.py").write_text("")
        for name, source in MODULES.items():
            (self.folder / f"{name}.py").write_text(source)
        facts = folder / "mine-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        text = "".join(f"[{group}]\n{line}\n" for group, line in PLUGINS.items())
        (facts / "entry_points.txt").write_text(text)

    def edit(self, module: str, old: str, new: str) -> None:
        path = self.folder / f"{module}.py"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        self.forget()

    def forget(self) -> None:
        """What a new process would not know."""
        for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        source_hash.cache_clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within one second would not be seen
    package = Package(tmp_path)
    yield package
    package.forget()


def cells_of(**changes: Any) -> list[grid.Cell]:
    return grid.expand(config.parse(SMALL | {"methods": ["source"], "quantizers": ["fp32"]} | changes))


def numbers(cells: list[grid.Cell], executor: Executor | None = None) -> dict[str, list[int]]:
    """Correct predictions of every cell, by its key; each cell is a task."""
    executor = executor or Executor()
    found: dict[str, list[int]] = {}
    for cell in cells:
        for delivery in executor.run([resolve(cell)], [Start(described=True)]):
            assert all(r["status"] == "ok" for r in delivery.records), delivery.records[0].get("reason")
            found.setdefault(cell.key, []).extend(r["correct"] for r in delivery.records)
    return found


def test_two_models_of_one_weights_file_have_each_a_calibration(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: the first to run made the calibration of both, so one key scored 89 or 84."""
    models = [{"use": "tweaked-model", "name": f"gain {g}", "gain": g} for g in (1.0, 1.5)]
    cells = cells_of(models=models, quantizers=["uniform"])
    assert len({cell.model.fingerprint for cell in cells}) == 1
    orders = []
    for i, order in enumerate((cells, cells[::-1])):
        monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / f"cache {i}"))
        orders.append(numbers(order))
        assert numbers(order) == orders[-1], "the same from what is on disk"
    assert orders[0] == orders[1]
    assert len({tuple(hits) for hits in orders[0].values()}) == 2


@pytest.mark.parametrize("kind", EDITS)
def test_edited_code_is_noticed_named_and_computed_again(
    kind: str, package: Package, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before: `nothing left to run`, and old images and calibrations even with --overwrite all."""
    grids = {
        "method": {"methods": ["tweaked-method", "source"]},
        "quantizer": {"quantizers": ["tweaked-quantizer", "fp32"]},
        "model": {"models": ["tweaked-model", "resnet-micro"]},
        "corruption": {"stream": SMALL["stream"] | {"corruptions": ["tweaked"]}},
    }
    results = tmp_path / "results"

    def go(**flags: Any) -> run.Summary:
        runner = run.make_runner("local", 1, RunPolicy())
        progress = RunProgress(quiet=True)
        progress.note = lambda text: print(text)  # type: ignore[method-assign]
        return run.run("small", cells_of(**grids[kind]), runner, results, "missing", progress, **flags)

    def hits() -> list[int]:
        store = ResultStore(results, "small")
        return [r["correct"] for c in cells_of(**grids[kind]) for r in store.read(c.key)]

    assert go().ran == len(cells_of(**grids[kind]))
    assert go().ran == 0
    keys, before = [c.key for c in cells_of(**grids[kind])], hits()
    capsys.readouterr()
    package.edit(*EDITS[kind])
    assert [c.key for c in cells_of(**grids[kind])] == keys, "comments change code, too: it is not in the key"
    assert go(keep_stale=True).ran == 0
    assert "Finished ones are kept" in capsys.readouterr().out
    assert hits() == before
    assert go().ran == 1
    said = capsys.readouterr().out
    name = "tweaked" if kind == "corruption" else f"tweaked-{kind}"
    assert f"The code of {kind} {name} has changed since 1 cell" in said
    assert hits() != before
    assert numbers(cells_of(**grids[kind])) == {
        key: [r["correct"] for r in ResultStore(results, "small").read(key)] for key in keys
    }
    assert go().ran == 0


def test_the_hash_covers_helpers_and_base_classes(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_of("methods", "tweaked-method")
    package.edit("helper", "AMOUNT = 0", "AMOUNT = 3")
    assert code_of("methods", "tweaked-method") != before
    assert code_of("methods", "source") != code_of("methods", "tweaked-method")


def test_plugins_of_ours_follow_their_imports_and_nothing_else() -> None:
    zoa = source_code._sources(["tta_bench_methods.zoa"])
    assert {"tta_bench_methods.zoa.__init__", "tta_bench_methods.zoa.bank"} <= zoa.keys()
    assert "tta_bench_methods.lame" not in zoa
    assert "tta_bench_quantizers._core/kernels.cpp" in source_code._sources(["tta_bench_quantizers.uniform"])


@pytest.mark.parametrize("namespace", [False, True])
def test_a_package_is_hashed_as_a_whole_also_without_init(
    namespace: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: of a package without `__init__.py` only the folder's own time counted."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"pack{namespace}"
    folder = tmp_path / name / "inner"
    folder.mkdir(parents=True)
    if not namespace:
        (tmp_path / name / "__init__.py").write_text("")
        (folder / "__init__.py").write_text("")
    (folder / "method.py").write_text("import math\n")
    (folder / "helper.py").write_text("X = 1\n")
    importlib.invalidate_caches()
    before = source_hash(f"{name}.inner.method")
    (folder / "helper.py").write_text("X = 2\n")
    source_hash.cache_clear()
    assert source_hash(f"{name}.inner.method") != before


SAME = [
    ({"methods": ["bn-adapt"]}, {"methods": [{"use": "bn-adapt", "prior": 16}]}),
    ({"methods": ["bn-adapt"]}, {"methods": [{"use": "bn-adapt", "prior": 16.0}]}),
    (
        {"quantizers": [{"use": "uniform", "bits": "w8a8"}]},
        {"quantizers": [{"use": "uniform", "bits": "W8A8"}]},
    ),
    ({"stream": {"limit": 5000}}, {"stream": {"limit": 2000}}),
    ({"stream": {"limit": 5000}}, {"stream": {"limit": None}}),
    ({"stream": {"limit": 64, "reset": "domain"}}, {"stream": {"limit": 64}}),
    ({"run": {"engine": "ray", "workers": 7}}, {"run": {"engine": "local"}}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_computation_has_one_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert [cell.key for cell in cells_of(**one)] == [cell.key for cell in cells_of(**other)]


OTHER = [
    ({"stream": {"limit": 64}}, {"stream": {"limit": 65}}),
    ({"methods": [{"use": "tent", "reset": "domain"}]}, {"methods": ["tent"]}),
    ({"methods": [{"use": "t3a", "filter_k": 5}]}, {"methods": [{"use": "t3a", "filter_k": 6}]}),
    ({"run": {"threads": 2}}, {"run": {"threads": 1}}),
    ({"seeds": [1]}, {"seeds": [2]}),
]


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_another_computation_has_another_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert [cell.key for cell in cells_of(**one)] != [cell.key for cell in cells_of(**other)]


def test_code_that_is_not_the_drivers_fails_the_cell(package: Package) -> None:
    cells = cells_of(methods=["tweaked-method"])
    package.edit(*EDITS["method"])
    (delivery,) = Executor().run([resolve(cell) for cell in cells])
    assert delivery.records[0]["status"] == "failed"
    assert "method tweaked-method: its code in this process is not" in delivery.records[0]["reason"]


def test_records_say_which_code_and_environment_made_them() -> None:
    (cell,) = cells_of()
    deliveries = list(Executor().run([resolve(cell)], [Start(described=True)]))
    description = deliveries[0].description
    assert description is not None
    assert description["code"] == {plugin.label: plugin.code for plugin in cell.plugins}
    ids = {record["environment"] for delivery in deliveries for record in delivery.records}
    assert ids == set(description["environments"])
    (environment,) = description["environments"].values()
    assert environment["versions"].keys() == {"tta-bench", "torch", "timm", "numpy"}
    assert {record["code"] for delivery in deliveries for record in delivery.records} == {cell.code}


def test_every_built_in_plugin_has_a_code() -> None:
    for group in registry.GROUPS:
        for name in registry.names(group):
            assert len(code_of(group, name)) == 16
