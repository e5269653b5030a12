"""From a tree of JPEG files to a table: ImageNet-C's layout, ResNet-50, the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.helpers.image_trees import CLASSES, RENDITIONS, write_classes, write_imagenet, write_imagenet_c
from tta_bench import cli, config, grid
from tta_bench.errors import UserError
from tta_bench.storage.store import ResultStore

EACH = 10
FILE: dict[str, Any] = {
    "name": "tiny-c",
    "data": {"use": "imagenet-c", "partial": True, "source_count": 8},
    "models": [{"use": "resnet-50", "weights": "random"}],
    "methods": ["source", "shift"],
    "stream": {"corruptions": ["fog", "snow"], "severity": 5, "rounds": 2, "batch_size": 8, "limit": 16},
    "run": {"engine": "local"},
}
TINY = {"use": "timm", "tag": "test_resnet.r160_in1k", "weights": "random"}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 validation images, and 40 in each of two domains of ImageNet-C."""
    base = tmp_path_factory.mktemp("trees")
    write_imagenet(base / "imagenet", EACH)
    write_imagenet_c(base / "imagenet-c", each=EACH)
    write_classes(base / "imagenet-r", 4, RENDITIONS, (260, 240))
    return base


@pytest.fixture
def call(tmp_path: Path, trees: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The command line on a changed benchmark file; data lies where the variable says."""
    monkeypatch.setenv("TTA_BENCH_DATA", str(trees))

    def call(command: str, *arguments: str, **changes: Any) -> Any:
        path = tmp_path / "file.yaml"
        path.write_text(yaml.safe_dump(FILE | changes))
        return CliRunner().invoke(cli.app, [command, str(path), *arguments])

    return call


def records(results: Path, name: str) -> list[dict[str, Any]]:
    store = ResultStore(results, name)
    return [record for row in store.manifest()["cells"] for record in store.read(row["key"])]


def test_imagenet_c_runs_from_files_to_a_table(call: Callable[..., Any], tmp_path: Path) -> None:
    results = str(tmp_path / "results")
    outcome = call("run", "--results", results, "--quiet")
    assert outcome.exit_code == 0, outcome.output
    found = records(tmp_path / "results", "tiny-c")
    assert len(found) == 2 * 2 * 2
    assert {record["status"] for record in found} == {"ok"}
    assert {record["images"] for record in found} == {16}
    store = ResultStore(tmp_path / "results", "tiny-c")
    facts = [store.description(row["key"]) for row in store.manifest()["cells"]]
    assert {len(description["weights_sha256"]) for description in facts if description} == {64}
    table = CliRunner().invoke(cli.app, ["table", "--results", results, "--layout", "long-term"])
    assert "resnet-50 FP32" in table.output, table.output
    again = call("run", "--results", results)
    assert again.exit_code == 0
    assert "nothing left to run" in again.output
    assert records(tmp_path / "results", "tiny-c") == found


@pytest.mark.parametrize(
    ("data", "corruption", "note"),
    [
        (
            {"use": "imagenet", "partial": True, "source_count": 8},
            "fog",
            "regenerated, not the published files",
        ),
        ({"use": "imagenet-r", "partial": True, "source_count": 8}, "rendition", ""),
    ],
)
def test_other_data_runs_and_its_note_is_recorded(
    call: Callable[..., Any], tmp_path: Path, data: dict[str, Any], corruption: str, note: str
) -> None:
    results = tmp_path / "results"
    model = TINY if corruption == "rendition" else FILE["models"][0]
    changes = {"data": data, "models": [model], "methods": ["source"]}
    changes["stream"] = {"corruptions": corruption, "rounds": 1, "batch_size": 8, "limit": 8}
    outcome = call("run", "--results", str(results), "--quiet", **changes)
    assert outcome.exit_code == 0, outcome.output
    (domain,) = records(results, "tiny-c")
    facts = ResultStore(results, "tiny-c").description(domain["key"])
    assert facts is not None
    assert note in facts["data_note"]
    assert (domain["status"], domain["images"]) == ("ok", 8)
    if corruption == "rendition":  # random weights spread their confidence over 200 classes, not 1000
        assert domain["ece"] > 1 / 250


def test_other_files_make_another_cell(trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTA_BENCH_DATA", str(trees))
    shutil.copytree(trees / "imagenet-c", tmp_path / "copy")
    raw = FILE | {"models": ["resnet-50"], "methods": ["source"]}

    def key(root: Path) -> str:
        return grid.expand(config.parse(raw | {"data": {**FILE["data"], "root": str(root)}}))[0].key

    assert key(tmp_path / "copy") == key(trees / "imagenet-c"), "where they lie does not matter"
    victim = next((tmp_path / "copy" / "snow" / "5" / CLASSES[0]).iterdir())
    content = victim.read_bytes()
    victim.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    assert victim.stat().st_size == len(content)
    assert key(tmp_path / "copy") != key(trees / "imagenet-c")


def truncated(root: Path) -> str:
    victim = sorted((root / "fog" / "5" / CLASSES[1]).iterdir())[0]
    victim.write_bytes(victim.read_bytes()[:-300])
    return f"{victim}: is damaged or cut short"


def without_class(root: Path) -> str:
    shutil.rmtree(root / "snow" / "5" / CLASSES[2])
    return f"{root / 'snow' / '5'}: class folder {CLASSES[2]} is missing"


def of_other_severity(root: Path) -> str:
    (root / "snow" / "5").rename(root / "snow" / "3")
    return f"{root / 'snow' / '5'}: severity 5 is missing. There: 3. Set stream.severity."


def without_corruption(root: Path) -> str:
    shutil.rmtree(root / "fog")
    return f"{root / 'fog'}: is missing. In {root}: snow."


@pytest.mark.parametrize("spoil", [truncated, without_class, of_other_severity, without_corruption])
@pytest.mark.parametrize("command", ["validate", "run"])
def test_spoilt_data_is_refused_by_name_before_anything_starts(
    call: Callable[..., Any], trees: Path, tmp_path: Path, spoil: Callable[[Path], str], command: str
) -> None:
    root = tmp_path / "imagenet-c"
    shutil.copytree(trees / "imagenet-c", root)
    wanted = spoil(root)
    data = {**FILE["data"], "root": str(root)}
    arguments = ["--results", str(tmp_path / "results")] if command == "run" else []
    outcome = call(command, *arguments, data=data, models=[FILE["models"][0]], methods=["source"])
    assert isinstance(outcome.exception, UserError), "the command ends with a message and 2"
    message = str(outcome.exception)
    assert "data imagenet-c: " in message
    assert wanted in message
    assert len(message.splitlines()) == 1
    assert not list((tmp_path / "results").glob("*/records/*"))


def test_weights_that_are_not_there_are_refused_before_anything_starts(call: Callable[..., Any]) -> None:
    outcome = call("validate", models=["vim-s", {"use": "resnet-50", "weights": "nowhere.pth"}])
    message = str(outcome.exception)
    assert "model vim-s: no hub serves the weights" in message
    assert "model resnet-50: weights file nowhere.pth is missing" in message


def test_a_plan_needs_neither_weights_nor_data(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TTA_BENCH_DATA")
    outcome = call("plan", "--json", data="imagenet-c", models=["resnet-50"], methods=["source"])
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(outcome.output)["cells"] == 1
