"""The paper's recipes: each validates and runs small, and together they cover every published number."""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from tta_bench import config, grid
from tta_bench.cli import app
from tta_bench.config.smoke import SIBLINGS, shrunk
from tta_bench.corruptions.sets import IMAGENET_C_15
from tta_bench.data.imagenet import wnids
from tta_bench.errors import ConfigError, UserError
from tta_bench.execution.run import check_inputs
from tta_bench.grid import Cell
from tta_bench.models.imagenet import ImageNetModel
from tta_bench.plugins import registry
from tta_bench.tables.references import load
from tta_bench.tables.references.reference import Identity

ROOT = Path(__file__).parents[2]
PAPER = (
    "ablation",
    "cost",
    "domain-management",
    "eata",
    "effect-alpha-init",
    "effect-c",
    "effect-distribution",
    "effect-n",
    "fp32",
    "imagenet-r",
    "imagenet-sketch",
    "long-term",
    "more-models",
    "motivation",
    "online",
    "quantized-vit",
    "resnet-vim",
)


@pytest.fixture(scope="module", autouse=True)
def _quick_registry() -> Iterator[None]:
    """Each look-up reads the metadata of all installed packages; here once is enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_points", functools.cache(registry._points))
        yield


def recipe(name: str) -> Path:
    return ROOT / "recipes" / f"{name}.yaml"


@functools.cache
def cells_of(name: str) -> list[Cell]:
    """The cells of a recipe; needs neither weights nor data."""
    return grid.expand(config.load(recipe(name)), name)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's val, ImageNet-C, -R and -Sketch with two classes of two images each, as $TTA_BENCH_DATA."""
    root = tmp_path_factory.mktemp("data")
    classes = wnids.rendition()[:2]
    places = ["imagenet/val", "imagenet-r", "imagenet-sketch"]
    places += [f"imagenet-c/{name}/5" for name in IMAGENET_C_15]
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (224, 224, 3), np.uint8))
    for place in places:
        for wnid in classes:
            folder = root / place / wnid
            folder.mkdir(parents=True)
            for number in range(2):
                image.save(folder / f"ILSVRC2012_val_0000000{number}_{wnid}.JPEG")
    return root


@pytest.mark.parametrize("name", PAPER)
def test_validates_with_a_root_from_the_environment(
    name: str, trees: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTA_BENCH_DATA", str(trees))
    monkeypatch.setattr(ImageNetModel, "problems", lambda self: [])  # weights are not what this is about
    benchmark = config.load(recipe(name), ["data.partial=true", "data.source_count=1"])
    check_inputs(grid.expand(benchmark, name))


def test_validates_with_a_root_on_the_command_line_and_refuses_a_wrong_one(
    trees: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TTA_BENCH_DATA", raising=False)
    monkeypatch.setattr(ImageNetModel, "problems", lambda self: [])
    flags = ["-o", "data.partial=true", "-o", "data.source_count=1"]
    good = ["-o", f"data.root={trees}/imagenet-c", "-o", f"data.imagenet_root={trees}/imagenet"]
    outcome = CliRunner().invoke(app, ["validate", str(recipe("online")), *good, *flags])
    assert outcome.exit_code == 0, outcome.output
    assert "3 cells" in outcome.output
    wrong = ["-o", f"data.root={trees}/imagenet-d"]
    failed = CliRunner().invoke(app, ["validate", str(recipe("online")), *wrong, *flags])
    assert isinstance(failed.exception, ConfigError)
    assert f"{trees}/imagenet-d: there is no such folder." in str(failed.exception)


def test_no_root_at_all_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTA_BENCH_DATA", raising=False)
    monkeypatch.setattr(ImageNetModel, "problems", lambda self: [])
    with pytest.raises(ConfigError, match=r"imagenet-c is not part of the package\. Set data\.root"):
        check_inputs(cells_of("cost"))


def test_recipes_are_named_as_their_files_and_told_in_the_docs() -> None:
    told = (ROOT / "docs" / "paper.md").read_text() + (ROOT / "recipes" / "README.md").read_text()
    for name in PAPER:
        assert config.load(recipe(name)).name == name
        assert told.count(f"`{name}.yaml`") >= 2, "in both"


def test_together_they_cover_every_published_number() -> None:
    """Each is the number of a cell of some recipe, whose stream has the rounds and domains it is about."""
    found: dict[tuple[str, str, str], list[tuple[Identity, Cell]]] = {}
    for name in PAPER:
        for cell in cells_of(name):
            plugins = (cell.data.use, cell.model.use, cell.bits, cell.method.use)
            identity = Identity(*plugins, cell.method.params, cell.reset)
            found.setdefault(plugins[1:], []).append((identity, cell))
    for row in load("zoa-mm25").rows:
        same = found.get((row.wanted.model, row.wanted.bits, row.wanted.method), [])
        assert any(
            row.wanted.matches(cell) and _reaches(c, row.round, row.wanted.domains) for cell, c in same
        ), row


def _reaches(cell: Cell, round_: object, domains: tuple[str, ...]) -> bool:
    rounds = {"all": 10, "reset": 1, None: 1}.get(round_, round_)  # type: ignore[call-overload]
    return cell.rounds >= rounds and {name for name, _ in cell.domains} >= set(domains)


# -- small ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAPER)
def test_shrinks_to_the_embedded_benchmark(name: str) -> None:
    whole = config.load(recipe(name))
    small = shrunk(whole)
    assert small.name == f"{name}-micro"
    assert small.data.use == "cifar10-mini"
    assert {choice.use for choice in small.models} <= set(SIBLINGS.values())
    assert (small.stream.rounds, small.stream.limit) == (min(whole.stream.rounds, 2), 64)
    assert len(small.stream.corruptions) == min(len(whole.stream.corruptions), 3)
    kept, all_of_it = (
        {(c.quantizer.use, c.bits, c.labels.method) for c in cells}
        for cells in (grid.expand(small, name), cells_of(name))
    )
    assert kept == all_of_it, "every quantizer still meets every method that it met"


def test_a_family_without_a_sibling_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.load("models", "vit-b"), "family", "mixer")
    with pytest.raises(UserError, match="ViT-B is of the family mixer"):
        shrunk(config.load(recipe("online")))


# Recipe, layout, figure, and cells that need no calibration, which takes a while. `make smoke` runs all.
SMOKE = [
    ("eata", "ablation", "rounds", "method=EATA"),
    ("fp32", "per-corruption", "online", "method=T*"),
    ("motivation", "gap", "motivation", "quantizer=FP32"),
]


@pytest.mark.parametrize(("name", "layout", "figure", "only"), SMOKE, ids=[name for name, *_ in SMOKE])
def test_runs_small_and_is_shown(name: str, layout: str, figure: str, only: str, tmp_path: Path) -> None:
    def call(*arguments: str) -> str:
        outcome = CliRunner().invoke(app, [*arguments, "--results", str(tmp_path)])
        assert outcome.exit_code == 0, outcome.output
        return outcome.output

    call("run", str(recipe(name)), "--micro", "--limit", "32", "--engine", "local", "--quiet", "--only", only)
    rows = csv.DictReader(io.StringIO(call("table", "--layout", layout, "--format", "csv")))
    assert any("not run yet" not in row["footnotes"] and "failed" not in row["footnotes"] for row in rows)
    call("figure", figure, "--output", str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_memory_of_the_whole_cost_table_is_known_before_any_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's claim: within 3 % of the paper for Source, TENT, FOA and ZOA, without data or weights."""
    monkeypatch.delenv("TTA_BENCH_DATA", raising=False)
    from tta_bench.tables.compare import Tolerance, compare
    from tta_bench.tables.forecast import forecast

    chosen = [cell for cell in cells_of("cost") if cell.method.use in ("source", "tent", "foa", "zoa")]
    found = compare(forecast(chosen), load("zoa-mm25"), Tolerance(), "tab:cost")
    memory = {(c.row, c.verdict) for c in found if c.published.metric == "memory_mib"}
    assert memory == {
        ("ViT-B FP32 Source", "within"),
        ("ViT-B FP32 TENT*", "within"),
        ("ViT-B FP32 TENT", "within"),
        ("ViT-B W8A8 Source", "within"),
        ("ViT-B W8A8 FOA (K=2) released", "within"),
        ("ViT-B W8A8 ZOA released", "within"),
        ("ViT-B W4A4 Source", "within"),
        ("ViT-B W4A4 FOA (K=2) released", "within"),
        ("ViT-B W4A4 ZOA released", "within"),
        ("ResNet-50 W8A8 Source", "within"),
        ("ResNet-50 W8A8 FOA (K=2) released", "within"),
        ("ResNet-50 W8A8 ZOA released", "within"),
    }


def test_plan_tells_disk_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTA_BENCH_DATA", raising=False)
    outcome = CliRunner().invoke(app, ["plan", str(recipe("online")), "--only", "method=Source"])
    assert outcome.exit_code == 0, outcome.output
    # 50 000 clean images of 135 kB and as many noisy ones of 30 kB; 86.6 million parameters of four bytes.
    assert "images 8.2 GB, weights 0.35 GB" in outcome.output
    assert "1 cells in 1 tasks" in outcome.output
