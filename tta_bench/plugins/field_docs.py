"""What each field of a class is for, in one line: its comment in the source code.

    lam: NonNegative = 30.0  # weight of the feature alignment

    # Smallest batch in which a shift is detected. None: as large as the first batch.
    min_batch: Count | None = None

`tta-bench list`, the JSON Schema of benchmark files and the documentation all show it. A field that a
class inherits, or redeclares without a comment, has the comment of its base class.
"""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from collections.abc import Mapping
from functools import cache


@cache
def field_docs(cls: type) -> Mapping[str, str]:
    """The comments of a class's fields by name; fields without a comment are left out."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= _own(base)
    return found


def _own(cls: type) -> dict[str, str]:
    """The comments of the fields that a class declares itself."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):  # it was made without a source file
        return {}
    trailing, alone = _comments(source)
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef))
    found: dict[str, str] = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno:
            lines = range(node.lineno, node.end_lineno + 1)
            text = " ".join(trailing[n] for n in lines if n in trailing) or _above(alone, node.lineno)
            found |= {node.target.id: text} if text else {}
    return found


def _comments(source: str) -> tuple[dict[int, str], dict[int, str]]:
    """The comments after code and those alone on a line, by line number."""
    trailing: dict[int, str] = {}
    alone: dict[int, str] = {}
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            before = lines[line - 1][:column].strip()
            (trailing if before else alone)[line] = token.string.lstrip("#: ").strip()
    return trailing, alone


def _above(alone: Mapping[int, str], line: int) -> str:
    """The comment that ends directly above a line; empty if there is none."""
    parts: list[str] = []
    while (line := line - 1) in alone:
        parts.insert(0, alone[line])
    return " ".join(parts)
