"""`tta-bench recipes`: what ships, in one line each, and the content of one."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.helpers.command import tta_bench
from tta_bench.config.json_schema import SHIPPED

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "benchmark.yaml", *sorted((ROOT / "recipes").glob("*.yaml"))]


def test_all_are_listed_with_a_sentence() -> None:
    rows = json.loads(tta_bench("recipes", "--json").stdout)
    assert [row["recipe"] for row in rows] == [file.stem for file in FILES]
    assert all(row["what"].endswith((".", ":", "?")) and 20 < len(row["what"]) < 250 for row in rows), rows


def test_one_is_printed_with_the_schema_of_this_installation() -> None:
    for name in ("long-term", "long-term.yaml", "benchmark"):
        text = tta_bench("recipes", name).stdout
        assert text.splitlines()[0] == f"# yaml-language-server: $schema={SHIPPED}"
        file = next(file for file in FILES if file.stem == Path(name).stem)
        assert yaml.safe_load(text) == yaml.safe_load(file.read_text("utf-8"))
        assert text.splitlines()[1:] == file.read_text("utf-8").splitlines()[1:]


def test_an_unknown_one_is_a_mistake() -> None:
    outcome = tta_bench("recipes", "long-trem")
    assert outcome.returncode == 2
    assert 'Did you mean "long-term"?' in outcome.stderr
