"""Arithmetic as a shell and uWSGI's ini files write it."""

import ast
import operator
import re
from collections.abc import Callable, Mapping

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def computed(text: str, values: Mapping[str, str]) -> str | None:
    """Return the whole number that an expression of numbers and names has as its value; None: it has none."""
    plain = re.sub(r"\$?\b([A-Za-z_]\w*)\b", lambda name: values.get(name[1], "?"), text)
    try:
        return str(int(_number(ast.parse(plain.strip(), mode="eval").body)))
    except (ValueError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        return None


def _number(node: ast.expr) -> float:
    """Return the value of an expression of numbers. Raise ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_number(node.left), _number(node.right))
    raise ValueError(ast.unparse(node))
