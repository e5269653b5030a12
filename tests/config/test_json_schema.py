"""The JSON Schema of benchmark files accepts all of ours, and refuses the shapes that the loader refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.config.test_config import BROKEN
from tests.config.test_hostile_yaml import FULL, WRITTEN
from tests.conftest import SMALL
from tests.helpers.command import tta_bench
from tests.helpers.tools import load_tool
from tta_bench.config.json_schema import SHIPPED, json_schema
from tta_bench.config.yaml import NotYaml, parse_yaml
from tta_bench.plugins import registry
from tta_bench.plugins.ranges import field_types

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "benchmark.yaml", *sorted((ROOT / "recipes").glob("*.yaml"))]
# What the loader refuses because of several values together, or what JSON Schema cannot express.
ONLY_THE_LOADER = {
    "unknown corruption": "data may have domains of its own",
    "two rows of one name": "two entries together",
    "model and data do not fit": "two entries together",
    "a data set that does not fit": "two entries together",
    "a billion rows": "the size of the grid",
    "a learning rate that is not a number": "JSON has no NaN",
    "a name with a line break": "`$` in Python also matches before a last line break",
    "a row that repaints the terminal": "characters that cannot be printed",
    "a row of two lines": "characters that cannot be printed",
    "a number of 6000 digits": "jsonschema cannot print it in its message",
}


class Yaml12(yaml.SafeLoader):
    """Numbers as editors read them: 1e-3 is one, which YAML 1.1 takes for a text."""


Yaml12.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"),
    list("-+0123456789."),
)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return dict(json.loads(SHIPPED.read_text("utf-8")))


def problems(schema: dict[str, Any], content: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(content)]


def test_the_shipped_schema_is_that_of_the_program(schema: dict[str, Any]) -> None:
    jsonschema.Draft7Validator.check_schema(schema)
    assert load_tool("schema_file").content() == SHIPPED.read_text("utf-8"), "run tools/schema_file.py"


def test_the_command_prints_all_installed_plugins() -> None:
    printed = json.loads(tta_bench("schema").stdout)
    jsonschema.Draft7Validator.check_schema(printed)
    for group in registry.GROUPS:
        if group != "corruptions":
            named = printed["$defs"][group]["anyOf"][0]["anyOf"][0]["enum"]
            assert named == registry.names(group)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_our_files_fit_it_and_name_it_in_their_first_line(file: Path, schema: dict[str, Any]) -> None:
    text = file.read_text("utf-8")
    assert problems(schema, yaml.load(text, Yaml12)) == []
    modeline = text.splitlines()[0].partition("# yaml-language-server: $schema=")[2]
    assert (file.parent / modeline).resolve() == SHIPPED


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused(case: str, schema: dict[str, Any]) -> None:
    changes, _ = BROKEN[case]
    assert bool(problems(schema, SMALL | changes)) is (case not in ONLY_THE_LOADER)


@pytest.mark.parametrize("case", [case for case in WRITTEN if case != "a number of 6000 digits"])
def test_hostile_files_are_refused(case: str, schema: dict[str, Any]) -> None:
    content, _ = WRITTEN[case]
    try:
        raw = parse_yaml(content if isinstance(content, str) else content.decode())
    except (NotYaml, UnicodeDecodeError):
        return  # no editor can read it either
    if len(content) < 200_000:
        assert bool(problems(schema, raw)) is (case not in ONLY_THE_LOADER)


def test_a_file_with_every_section_fits(schema: dict[str, Any]) -> None:
    assert problems(schema, FULL) == []
    short = SMALL | {"stream": {"corruptions": "fog", "severity": [1, 2], "scenario": "continual"}}
    assert problems(schema, short | {"methods": [{"use": "tent", "lr": [0.1, 0.2]}, "t3a:5"]}) == []


@pytest.mark.parametrize("group", [group for group in registry.GROUPS if group != "corruptions"])
def test_every_parameter_has_its_description_default_and_range(group: str, schema: dict[str, Any]) -> None:
    """Loader and schema agree on a wrong value of every parameter, and on an unknown one."""
    for name in registry.built_in(group):
        plugin = registry.load(group, name)
        properties = schema["$defs"][f"{group}.{name}"]["properties"]
        validator = jsonschema.Draft7Validator({"$ref": f"#/$defs/{group}", "$defs": schema["$defs"]})
        assert not validator.is_valid({"use": name, "qqq": 1})
        for parameter, kind in field_types(plugin).items():
            assert properties[parameter]["description"]
            for wrong in ({"a": 1}, [[]], -1, 10**9, True, "qqq"):
                try:
                    kind.fit(wrong)
                except ValueError:
                    assert not validator.is_valid({"use": name, parameter: wrong}), (name, parameter, wrong)


def test_a_plugin_that_cannot_be_imported_may_have_any_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(group: str, name: str, real: Any = registry.load) -> Any:
        if name == "tent":
            raise registry.UnknownPlugin("broken")
        return real(group, name)

    monkeypatch.setattr(registry, "load", load)
    found = json_schema(lambda group: ["tent"] if group == "methods" else registry.built_in(group))
    assert problems(found, SMALL | {"methods": [{"use": "tent", "anything": 1}]}) == []
