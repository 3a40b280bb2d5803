"""The two questions about the time of a stream, which a schema alone answers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

# The schema of a stream, and the description of one that clients have.
ANSWERING = ("datastem/schema.py", "client_sdk/_wire/models.py")
PACKAGES = ("psoup", "querystem", "datastem", "results", "client_sdk")


def _sources() -> list[Path]:
    answering = {ROOT / name for name in ANSWERING}
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return [path for path in paths if path not in answering]


def _tests(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of a program that are compared with None or taken for a truth value."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left, [ast.Is() | ast.IsNot()]):
                yield left
            case ast.If(test) | ast.IfExp(test) | ast.While(test) | ast.Assert(test):
                yield test
            case ast.UnaryOp(ast.Not(), operand):
                yield operand
            case ast.BoolOp(ast.And(), values):
                yield from values
            case ast.comprehension(ifs=conditions):
                yield from conditions


def _is_raw(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Attribute) and expression.attr == "ordered_by"


@pytest.mark.parametrize(
    "text",
    ["a.ordered_by is None", "1 if s.ordered_by else 2", "[s for s in t if not s.ordered_by]"],
)
def test_raw_questions_are_recognised(text: str) -> None:
    assert any(map(_is_raw, _tests(ast.parse(text))))


def test_only_the_schema_asks_for_its_column() -> None:
    raw = [
        f"{path.relative_to(ROOT)}:{expression.lineno}"
        for path in _sources()
        for expression in _tests(ast.parse(path.read_text()))
        if _is_raw(expression)
    ]
    assert not raw, f"ask ts_is_stamp, now_is_clock or event_time instead: {raw}"
