"""docs/reference/errors.md: its table is complete, and its codes are those of the server."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from datastem.errors import DataError, TooMuchText
from psoup.server.status_codes import CODES, code_of, detail_of
from psoup.store.errors import Conflict, StoreError
from querystem.language import NotYet, QueryError
from tests.support.docs.markdown import ROOT, code, read, table

PAGE = read("docs/reference/errors.md")
ERRORS = {code(row[0]): row[1] for row in table(PAGE, "reason", "code", "when")}

# ---- the table of errors

_RAISED = {"RowError", "BadValue", "_bad_value", "_name_error"}


def _constant(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _reasons(tree: ast.Module) -> Iterator[str | None]:
    """Reasons as the code gives them: an attribute, a keyword, or the first argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id in ("reason", "default_reason"):
                yield _constant(node.value)
        elif isinstance(node, ast.keyword) and node.arg == "reason":
            yield _constant(node.value)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in _RAISED and node.args:
            yield _constant(node.args[0])


def test_every_reason_in_the_code_is_in_the_table() -> None:
    reasons = {"NOT_YET"}
    for folder in ("psoup/server", "psoup/web", "querystem/language", "datastem"):
        for path in (ROOT / folder).rglob("*.py"):
            reasons |= {reason for reason in _reasons(ast.parse(path.read_text())) if reason}
    abstract = {"SERVER", "QUERY"}
    assert reasons - abstract - set(ERRORS) == set()


@pytest.mark.parametrize("kind", [k for k in CODES if k not in (DataError, StoreError, QueryError)])
def test_the_table_has_the_code_of_every_error(kind: type[Exception]) -> None:
    if kind is Conflict:
        error: Exception = Conflict("log", 1)
    elif issubclass(kind, NotYet):
        error = NotYet("this", None, hint="that")
    elif kind.__name__ == "RowError":
        error = kind("WRONG_TYPE", "x")
    elif kind is TooMuchText:
        error = TooMuchText(2, 1)
    else:
        error = kind("x")
    reason = detail_of(error, "").reason
    if reason != "SERVER":
        assert ERRORS[reason] == code_of(error).name
