"""docs/cli.md is what the program says."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.helpers.tools import load_tool
from tta_bench.cli import app


@pytest.fixture(scope="module")
def tool() -> Any:
    return load_tool("cli_reference")


def test_the_page_is_up_to_date(tool: Any) -> None:
    remedy = "run `python tools/cli_reference.py`"
    assert tool.PAGE.read_text("utf-8") == tool.reference(), remedy


def test_every_command_and_every_option_is_there(tool: Any) -> None:
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", tool.reference(), re.DOTALL | re.MULTILINE))
    commands = {info.name or info.callback.__name__ for info in app.registered_commands if info.callback}
    commands.add("models check")  # the one command of a group
    assert set(sections) == commands
    for command in ("run", "table", "merge", "doctor", "status"):
        help = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
        options = set(re.findall(r"--[a-z][a-z-]+", help)) - {"--help"}
        assert options, help
        assert options <= set(re.findall(r"--[a-z][a-z-]+", sections[command]))


def test_facts_of_an_option(tool: Any) -> None:
    page = tool.reference()
    assert "| `--results PATH` | `results` | results folder |" in page
    assert "| `--into PATH` | required |" in page
    assert "| `-o TEXT`, `--override TEXT`, repeatable |  |" in page
    assert "    tta-bench merge SOURCES … [OPTIONS]" in page
