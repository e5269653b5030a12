"""Source of a module → its mutants, each with its own source and an id that outlives edits elsewhere."""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from mutation.operators import changes

# Neither changes what a module computes.
SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "type_params"}
SKIPPED_NODES = (
    ast.Import,
    ast.ImportFrom,
    ast.expr_context,
    ast.operator,
    ast.cmpop,
    ast.boolop,
    ast.unaryop,
)


@dataclass(frozen=True)
class Mutant:
    """A module with one small defect."""

    id: str
    path: str
    lines: range  # of the statement that is mutated, without its body
    operator: str
    diff: str
    source: str = field(repr=False)

    @property
    def place(self) -> str:
        """File and line, as editors open them."""
        return f"{self.path}:{self.lines.start}"


@dataclass(frozen=True)
class _Site:
    """Where a node is in the tree, and the innermost statement and function around it."""

    parent: ast.AST
    field: str
    index: int | None
    statement: ast.stmt
    scope: str

    def get(self) -> ast.AST:
        value = getattr(self.parent, self.field)
        found: ast.AST = value if self.index is None else value[self.index]
        return found

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants(path: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines; of several with the same source, the first."""
    tree = ast.parse(source)
    parts = [ast.unparse(statement) for statement in tree.body]
    found: dict[str, Mutant] = {}
    seen: Counter[str] = Counter()
    for i, statement in enumerate(tree.body):
        for site, operator, text in _changed(statement):
            mutated = "\n\n".join([*parts[:i], text, *parts[i + 1 :]]) + "\n"
            if text == parts[i] or mutated in found:
                continue
            diff = _diff(parts[i], text)
            name = f"{site.scope}\n{operator}\n{diff}"
            seen[name] += 1  # the same change of equal lines in one function
            digest = hashlib.sha256(f"{path}\n{name}\n{seen[name]}".encode()).hexdigest()[:8]
            module = path.removesuffix(".py").rpartition("/")[2]
            found[mutated] = Mutant(
                f"{module}:{digest}", path, _header(site.statement), operator, diff, mutated
            )
    return sorted(found.values(), key=lambda mutant: mutant.lines.start)


def unchanged(source: str) -> str:
    """A module as its mutants are written, without a defect."""
    return "\n\n".join(ast.unparse(statement) for statement in ast.parse(source).body) + "\n"


def _changed(statement: ast.stmt) -> Iterator[tuple[_Site, str, str]]:
    """Every mutation of a top-level statement: its site, the operator, the statement's new text."""
    holder = ast.Module([statement], [])
    for site in list(_sites(holder, statement, "")):
        node = site.get()
        for operator, mutated in changes(node, site.parent, site.field):
            site.put(mutated)
            text = ast.unparse(ast.fix_missing_locations(holder.body[0]))
            site.put(node)
            yield site, operator, text


def _sites(parent: ast.AST, statement: ast.stmt, scope: str) -> Iterator[_Site]:
    for name, value in ast.iter_fields(parent):
        if name in SKIPPED_FIELDS:
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(node, ast.AST) or isinstance(node, SKIPPED_NODES) or _only_for_types(node):
                continue
            inner = node if isinstance(node, ast.stmt) else statement
            yield _Site(parent, name, index, inner, scope)
            named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            yield from _sites(node, inner, f"{scope}.{node.name}" if named else scope)  # type: ignore[attr-defined]


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _header(statement: ast.stmt) -> range:
    """The lines of a statement, of a compound one those before its body."""
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def _diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
