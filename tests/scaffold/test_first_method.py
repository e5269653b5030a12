"""docs/first-method.md does what it says: its commands are run, in a folder and an environment apart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.other_environment import OtherEnvironment, installed_here
from tta_bench import scaffold

PAGE = Path(__file__).parents[2] / "docs" / "first-method.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_code_on_the_page_is_that_of_the_package(tmp_path: Path) -> None:
    folder = scaffold.create("method", "running-prior", tmp_path)
    code = (folder / "tta_bench_running_prior.py").read_text()
    assert blocks("python")
    assert all(block in code for block in blocks("python"))


@pytest.mark.slow
def test_the_commands_lead_to_a_row_of_ones_own(tmp_path: Path) -> None:
    before = installed_here()
    environment = OtherEnvironment(tmp_path / "environment")
    folder = tmp_path / "folder"
    folder.mkdir()
    parts = [f"echo '== {number}'\n{block}" for number, block in enumerate(blocks("sh"))]
    said = environment.shell("\n".join(parts), cwd=folder)
    made, listed, checked, table, sweep = re.split(r"^== \d\n", said, flags=re.MULTILINE)[1:]
    assert "a complete package" in made
    assert "running-prior" in listed
    assert "FAIL" not in checked
    assert checked.count("ok ") > 20
    rows = [line.split() for line in table.splitlines() if "running-prior" in line]
    assert len(rows) == 4, "two models, float and in 8 bits"
    assert all(0 < float(row[-2].strip("*")) < 100 for row in rows), "the rank comes last"
    assert all(f"running-prior (strength={value})" in sweep for value in ("0.5", "1.0", "2.0"))
    assert installed_here() == before, "nothing is left behind in this environment"
