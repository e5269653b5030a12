"""docs/first-model.md does what it says: a ResNet with v1 strides, made from the template by the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.helpers.other_environment import OtherEnvironment, installed_here
from tta_bench import scaffold
from tta_bench.api.families import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "first-model.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_code_on_the_page_is_that_of_the_package(tmp_path: Path) -> None:
    code = (scaffold.create("timm-model", "resnet-v1", tmp_path) / "tta_bench_resnet_v1.py").read_text()
    assert blocks("python")
    assert all(block in code for block in blocks("python"))


def test_the_page_promises_what_the_code_promises() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.read_text(), re.MULTILINE))
    assert rows.keys() >= FAMILIES.keys()
    for name, promise in FAMILIES.items():
        assert promise.split(". Methods")[0] == rows[name].replace(" (`tokens = False`)", "")


STRIDES = """
from tta_bench.plugins import registry
model = registry.load("models", "resnet-v1")().build()
print([block.conv1.stride[0] for block in model.blocks], [block.conv2.stride[0] for block in model.blocks])
"""


@pytest.mark.slow
def test_the_commands_lead_to_rows_of_a_network_with_v1_strides(tmp_path: Path) -> None:
    before = installed_here()
    environment = OtherEnvironment(tmp_path / "environment")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "strides.py").write_text(STRIDES)
    parts = [
        f"echo '== {number}'\n{block}" for number, block in enumerate([*blocks("sh"), "python ../strides.py"])
    ]
    said = environment.shell("\n".join(parts), cwd=folder)
    made, edited, checked, clean, quantised, ran, strides = re.split(r"^== \d\n", said, flags=re.MULTILINE)[
        1:
    ]
    assert "a complete package" in made
    assert not edited
    assert "FAIL" not in checked
    assert "every inserted module is called" in checked
    assert re.search(r"resnet-v1 on cifar10-mini: \d+ of 256 clean images correct", clean)
    assert "stride v1" in clean
    assert re.search(r"^input_quantizer +8", quantised, re.MULTILINE), "the network's input is quantised"
    assert "Warning" not in ran
    rows = [line for line in ran.splitlines() if re.search(r"\b(source|bn-adapt|zoa)\b", line)]
    assert len(rows) >= 6, "three methods, float and in 8 bits"
    assert strides.strip() == "[1, 1, 2, 1, 2, 1, 2, 1] [1, 1, 1, 1, 1, 1, 1, 1]"
    manifest = json.loads(
        (folder / "tta-bench-resnet-v1" / "results" / "resnet-v1" / "benchmark.json").read_text()
    )
    zoa = [cell["method"]["params"] for cell in manifest["cells"] if cell["method"]["use"] == "zoa"]
    assert len(zoa) == 2
    assert all((params["lam"], params["c"], params["tau"]) == (1.0, 0.01, 0.2) for params in zoa), (
        "ResNet presets"
    )
    assert installed_here() == before, "nothing is left behind in this environment"
