"""What reaches a terminal: names of others with their control characters escaped."""

from __future__ import annotations

import io
import json
import unicodedata
from contextlib import redirect_stderr, redirect_stdout

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.helpers.misbehaving.repaints import SEQUENCE
from tta_bench.description import columns
from tta_bench.errors import UserError
from tta_bench.execution.progress import RunProgress
from tta_bench.terminal import LINES, printable, say


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – ünï 💥", "plain – ünï 💥"),
        ("\x1b[2Jgone", "\\u001b[2Jgone"),
        ("a\x9b31mred", "a\\u009b31mred"),
        ("over\rwritten\x08", "over\\rwritten\\b"),
        ("\x7f", "\\u007f"),
        ("cod\u202etxt.exe", "cod\\u202etxt.exe"),
        ("line\u2028break", "line\\u2028break"),
        ("not UTF-8 \udcff", "not UTF-8 \\udcff"),
        ("tag \U000e0041", "tag \\udb40\\udc41"),
        ("two\nlines\tand a tab", "two\\nlines\\tand a tab"),
        ("no\u00a0break", "no\u00a0break"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(text=st.text(st.characters()))
def test_no_text_gets_through(text: str) -> None:
    shown = printable(text)
    assert all(char.isprintable() or unicodedata.category(char) == "Zs" for char in shown)
    assert not set(shown) & {chr(code) for code in (*range(32), *range(127, 160))}
    assert json.loads(printable(json.dumps(text, ensure_ascii=False), LINES)) == text, "the same JSON"


def test_everything_that_is_said_is_escaped_and_keeps_its_lines() -> None:
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        say(f"one\n{SEQUENCE}")
        say(UserError(f"{SEQUENCE}\ntwo"), error=True)
    for text in (output.getvalue(), errors.getvalue()):
        assert "\\u001b[2J" in text
        assert text.count("\n") == 2
        assert text.replace("\n", "").isprintable()


def test_progress_and_columns_are_escaped() -> None:
    progress = RunProgress()
    progress.console = Console(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    progress.note(f"[bold]{SEQUENCE}")
    shown = progress.console.file.getvalue()  # type: ignore[attr-defined]
    assert "[bold]\\u001b[2J" in shown, "brackets are no markup, either"
    assert shown.rstrip("\n").isprintable()
    assert "\\n" in columns([{"name": "two\nlines", "count": 3, "none": None}])
