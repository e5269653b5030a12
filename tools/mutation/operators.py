"""AST node → the nodes that a mutation puts in its place, each with the operator's name."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

Change = tuple[str, ast.AST]  # the operator's name, and the node that replaces the original

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil"}


def changes(node: ast.AST, parent: ast.AST, field: str) -> Iterator[Change]:
    """All mutations of one node, which is in `field` of its parent."""
    for mutate in OPERATORS.get(type(node), ()):
        yield from mutate(node)
    if isinstance(node, ast.Constant):
        yield from _constant(node, parent, field)
    if isinstance(node, ast.expr) and _is_condition(parent, field):
        yield from _condition(node, parent)


def _compare(node: ast.Compare) -> Iterator[Change]:
    for i, operator in enumerate(node.ops):
        for swapped in COMPARISONS[type(operator)]:
            mutated = copy.deepcopy(node)
            mutated.ops[i] = swapped()
            yield "comparison", mutated


def _arithmetic(node: ast.BinOp | ast.AugAssign) -> Iterator[Change]:
    if type(node.op) in ARITHMETIC:
        mutated = copy.deepcopy(node)
        mutated.op = ARITHMETIC[type(node.op)]()
        yield "arithmetic", mutated


def _and_or(node: ast.BoolOp) -> Iterator[Change]:
    swapped = copy.deepcopy(node)
    swapped.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield "and/or", swapped
    for i in range(len(node.values)):
        rest = [value for j, value in enumerate(node.values) if j != i]
        yield "dropped operand", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _unary(node: ast.UnaryOp) -> Iterator[Change]:
    if isinstance(node.op, ast.Not | ast.USub):
        yield "removed sign", node.operand


def _call(node: ast.Call) -> Iterator[Change]:
    mutated = copy.deepcopy(node)
    name = mutated.func
    if isinstance(name, ast.Name) and name.id in CALLS:
        name.id = CALLS[name.id]
        yield "call", mutated
    elif isinstance(name, ast.Attribute) and name.attr in CALLS:
        name.attr = CALLS[name.attr]
        yield "call", mutated


def _slice(node: ast.Slice) -> Iterator[Change]:
    for bound in ("lower", "upper", "step"):
        if getattr(node, bound) is not None:
            mutated = copy.copy(node)
            setattr(mutated, bound, None)
            yield "slice", mutated


def _branches(node: ast.IfExp) -> Iterator[Change]:
    yield "swapped branches", ast.IfExp(node.test, node.orelse, node.body)


def _if(node: ast.If) -> Iterator[Change]:
    # `elif` is an `if` in `orelse`; to swap it would only change the indentation of what else is mutated.
    if node.orelse and not isinstance(node.orelse[0], ast.If):
        yield "swapped branches", ast.If(node.test, node.orelse, node.body)


def _return(node: ast.Return) -> Iterator[Change]:
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield "returned None", ast.Return(ast.Constant(None))


def _dropped(node: ast.stmt) -> Iterator[Change]:
    yield "dropped statement", ast.Pass()


def _dropped_expression(node: ast.Expr) -> Iterator[Change]:
    # A function without its `yield` is no generator: every test would notice, and learn nothing from it.
    if not isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom):
        yield from _dropped(node)


def _dropped_assignment(node: ast.Assign) -> Iterator[Change]:
    """Assignments to attributes and items; without a name that is read later, all tests would fail."""
    if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
        yield from _dropped(node)


def _constant(node: ast.Constant, parent: ast.AST, field: str) -> Iterator[Change]:
    if isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node.value, int | float):
        yield "constant", ast.Constant(node.value + 1)
    elif isinstance(node.value, str) and _is_compared(parent, field):
        yield "text", ast.Constant(f"{node.value}?")


def _is_compared(parent: ast.AST, field: str) -> bool:
    """Whether a text is a key or is compared with one; texts for people are not mutated."""
    return isinstance(parent, ast.Subscript | ast.Compare) or (
        isinstance(parent, ast.Dict) and field == "keys"
    )


def _is_condition(parent: ast.AST, field: str) -> bool:
    if isinstance(parent, ast.comprehension):
        return field == "ifs"
    return isinstance(parent, ast.If | ast.IfExp) and field == "test"


def _condition(node: ast.expr, parent: ast.AST) -> Iterator[Change]:
    yield "always true", ast.Constant(True)
    yield "always false", ast.Constant(False)


OPERATORS: dict[type[ast.AST], tuple[Callable[..., Iterator[Change]], ...]] = {
    ast.Compare: (_compare,),
    ast.BinOp: (_arithmetic,),
    ast.BoolOp: (_and_or,),
    ast.UnaryOp: (_unary,),
    ast.Call: (_call,),
    ast.Slice: (_slice,),
    ast.IfExp: (_branches,),
    ast.If: (_if,),
    ast.Return: (_return,),
    ast.Expr: (_dropped_expression,),
    ast.Assign: (_dropped_assignment,),
    ast.AugAssign: (_arithmetic, _dropped),
    ast.Raise: (_dropped,),
    ast.Continue: (_dropped,),
    ast.Break: (_dropped,),
    ast.Delete: (_dropped,),
}
