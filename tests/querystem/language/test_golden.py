"""Texts beside what becomes of them: errors as people see them, predicates in normal form.

A golden file is a list of blocks: the text, a line of dashes, the result, a line of equals signs.
`PSOUP_GOLDEN=write pytest tests/querystem/language/test_golden.py` writes the results anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from querystem.language import (
    QueryError,
    bind_window,
    parse_statement,
    refresh_text,
    window_text,
)
from querystem.query_json import query_form, query_from_json, query_to_json, read_form
from tests.querystem.language.support import TRADES, bind, show, show_query, show_tree, where

GOLDEN = Path(__file__).parent / "golden"
_ARROW, _NEXT = "-" * 20, "=" * 20


def test_query_errors():
    check("query_errors.txt", lambda text: refusal(lambda: bind(text)))


def test_statement_errors():
    check("statement_errors.txt", lambda text: refusal(lambda: parse_statement(text)))


def test_window_errors():
    check("window_errors.txt", lambda text: refusal(lambda: bind_window(text, TRADES)))


def test_keyed_window_errors():
    keyed = replace(TRADES, key=("symbol",))
    check("keyed_window_errors.txt", lambda text: refusal(lambda: bind_window(text, keyed)))


def test_normal_forms():
    check("normal_forms.txt", lambda text: show(where(text)))


def test_windows():
    check("windows.txt", lambda text: window_text(bind_window(text, TRADES)))


def test_refresh_errors():
    check("refresh_errors.txt", lambda text: refusal(lambda: bind(text)))


def test_refreshes():
    """Written out, the clause binds to itself."""

    def written(text: str) -> str:
        query = bind(text)
        clauses = f"{window_text(query.leg.window)} {refresh_text(query.refresh)}"
        again = bind(f"SELECT * FROM {query.leg.stream} {clauses}")
        assert (again.leg.window, again.refresh) == (query.leg.window, query.refresh)
        assert query_from_json(query_to_json(query)) == query
        return clauses

    check("refreshes.txt", written)


def test_queries():
    check("queries.txt", lambda text: show_query(bind(text)))


def test_trees():
    """Whatever is bound is read back from what a registration keeps of it."""

    def written(text: str) -> str:
        query = bind(text)
        assert read_form(query_form(query), query.predicate_keys) == query
        assert query_from_json(query_to_json(query)) == query
        return show_tree(query)

    check("trees.txt", written)


def test_tree_errors():
    check("tree_errors.txt", lambda text: refusal(lambda: bind(text)))


def refusal(attempt: Callable[[], object]) -> str:
    with pytest.raises(QueryError) as caught:
        attempt()
    problem = caught.value
    return f"{type(problem).__name__} {problem.reason}\n{problem}"


def texts_of(path: Path) -> list[str]:
    blocks = [block.strip("\n") for block in path.read_text().split(f"\n{_NEXT}\n")]
    return [
        block.split(f"\n{_ARROW}\n")[0].removesuffix(f"\n{_ARROW}") for block in blocks if block
    ]


def check(name: str, result_of: Callable[[str], str]) -> None:
    path = GOLDEN / name
    texts = texts_of(path)
    results = [result_of(text) for text in texts]
    written = "".join(
        f"{text}\n{_ARROW}\n{result}\n{_NEXT}\n"
        for text, result in zip(texts, results, strict=True)
    )
    if os.environ.get("PSOUP_GOLDEN") == "write":
        path.write_text(written)
    assert written == path.read_text()
