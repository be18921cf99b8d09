"""Small, plausible mistakes in Python source: each operator finds places in a module and says what stands there instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One mistake: `text[start:end]` becomes `new`, within the function `scope` that has `lines` lines."""

    operator: str
    start: int
    end: int
    new: str
    scope: str
    lines: int

    def apply(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


_COMPARE = {"Lt": "<=", "LtE": "<", "Gt": ">=", "GtE": ">", "Eq": "!=", "NotEq": "==", "In": "not in", "NotIn": "in"}
_COMPARE |= {"Is": "is not", "IsNot": "is"}
_ARITHMETIC = {"Add": "-", "Sub": "+", "Mult": "+", "FloorDiv": "%", "Mod": "//", "Div": "*", "Pow": "*"}
_CALLS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "sorted": "list",
    "ljust": "rjust",
    "rjust": "ljust",
    "lstrip": "rstrip",
    "rstrip": "strip",
    "popleft": "pop",
    "startswith": "endswith",
    "endswith": "startswith",
    "partition": "rpartition",
    "rpartition": "partition",
    "lower": "upper",
    "isdigit": "isalnum",
}


class _Source:
    """A module's text with the places of its nodes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        for line in text.encode().split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._ascii = text.isascii()

    def place(self, line: int, column: int) -> int:
        offset = self._starts[line - 1] + column
        return offset if self._ascii else len(self.text.encode()[:offset].decode())

    def span(self, node: ast.expr | ast.stmt | ast.arg) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.place(node.lineno, node.col_offset), self.place(node.end_lineno, node.end_col_offset)

    def code(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.text[start:end]


def mutations(text: str) -> list[Mutation]:
    """Return every mutation of a module in the order of its text."""
    source = _Source(text)
    found: list[Mutation] = []
    for function, name in _functions(ast.parse(text)):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        for operator, start, end, new in _of_function(function, source):
            found.append(Mutation(operator=operator, start=start, end=end, new=new, scope=name, lines=lines))
    return sorted(found, key=lambda m: (m.start, m.end, m.operator, m.new))


def _functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node, node.name
        elif isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name != "__repr__":
                    yield item, f"{node.name}.{item.name}"


Change = tuple[str, int, int, str]


def _of_function(function: ast.FunctionDef, source: _Source) -> Iterator[Change]:
    yield from _defaults(function, source)
    for node in ast.walk(function):
        if isinstance(node, ast.Compare):
            yield from _compare(node, source)
        elif isinstance(node, ast.BinOp):
            yield from _arithmetic(node, source)
        elif isinstance(node, ast.BoolOp):
            yield from _boolean(node, source)
        elif isinstance(node, ast.Call):
            yield from _call(node, source)
        elif isinstance(node, ast.Constant):
            yield from _constant(node, source)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield "dropped-not", *source.span(node), source.code(node.operand)
        elif isinstance(node, ast.If):
            yield from _guard(node, source)
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list) and len(body) > 1:
                yield from _statements(body, source)


def _compare(node: ast.Compare, source: _Source) -> Iterator[Change]:
    left = node.left
    for operator, right in zip(node.ops, node.comparators, strict=True):
        new = _COMPARE[type(operator).__name__]
        yield "comparison", source.span(left)[1], source.span(right)[0], f" {new} "
        left = right


def _arithmetic(node: ast.BinOp, source: _Source) -> Iterator[Change]:
    new = _ARITHMETIC.get(type(node.op).__name__)
    start, end = source.span(node.left)[1], source.span(node.right)[0]
    between = source.text[start:end]
    if new and "(" not in between and ")" not in between and not isinstance(node.left, ast.Constant | ast.JoinedStr):
        yield "arithmetic", start, end, f" {new} " if " " in between else new


def _boolean(node: ast.BoolOp, source: _Source) -> Iterator[Change]:
    new = " or " if isinstance(node.op, ast.And) else " and "
    for left, right in zip(node.values, node.values[1:], strict=False):
        start, end = source.span(left)[1], source.span(right)[0]
        if source.text[start:end].strip() in ("and", "or"):
            yield "boolean", start, end, new


def _call(node: ast.Call, source: _Source) -> Iterator[Change]:
    if len(node.args) == 2 and not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args):
        first, second = node.args
        if source.code(first) != source.code(second):
            between = source.text[source.span(first)[1] : source.span(second)[0]]
            new = source.code(second) + between + source.code(first)
            yield "swapped-arguments", source.span(first)[0], source.span(second)[1], new
    name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
    if name in _CALLS:
        end = source.span(node.func)[1]
        yield "wrong-call", end - len(name), end, _CALLS[name]


def _constant(node: ast.Constant, source: _Source) -> Iterator[Change]:
    start, end = source.span(node)
    if node.value is True or node.value is False:
        yield "wrong-constant", start, end, str(not node.value)
    elif isinstance(node.value, int) and source.text[start:end].isdigit():
        family = "off-by-one" if node.value <= 2 else "wrong-constant"
        yield family, start, end, str(node.value + 1)
        if node.value > 0:
            yield family, start, end, str(node.value - 1)


def _guard(node: ast.If, source: _Source) -> Iterator[Change]:
    """A guard that is left out: `if ...: raise`, return, continue or break, without an else."""
    if node.orelse or len(node.body) != 1 or not isinstance(node.body[0], ast.Raise | ast.Return | ast.Continue | ast.Break):
        return
    start, end = source.span(node)
    begin = source.text.rfind("\n", 0, start) + 1
    if source.text[begin:start].strip() == "" and source.text[end : end + 1] == "\n":
        yield "dropped-branch", begin, end + 1, ""


def _statements(body: list[ast.stmt], source: _Source) -> Iterator[Change]:
    for statement in body:
        bare_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        if bare_call or isinstance(statement, ast.AugAssign):
            start, end = source.span(statement)
            begin = source.text.rfind("\n", 0, start) + 1
            if source.text[begin:start].strip() == "" and source.text[end : end + 1] == "\n":
                yield "dropped-statement", begin, end + 1, ""


def _defaults(function: ast.FunctionDef, source: _Source) -> Iterator[Change]:
    for default in (*function.args.defaults, *(d for d in function.args.kw_defaults if d is not None)):
        if isinstance(default, ast.Constant) and isinstance(default.value, int | float):
            start, end = source.span(default)
            value = default.value
            new = str(not value) if isinstance(value, bool) else str(value + 1 if value < 2 else value / 2)
            yield "wrong-default", start, end, new.removesuffix(".0") if isinstance(value, int) else new
