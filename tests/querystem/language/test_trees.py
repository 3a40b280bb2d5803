"""Texts over several streams: the papers' own, their limits, and windows that a caller brings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from datastem.schema import StreamSchema
from querystem.language import (
    QueryError,
    TemplateCache,
    WindowProblem,
    bind_query,
    bind_window,
    window_text,
)
from querystem.query_json import query_form, read_form
from results.window import UNBOUNDED, depends_on_now
from tests.querystem.language.support import (
    ALARMS,
    QUOTES,
    STREAMS,
    TRADES,
    bind,
    lookup,
    schema_of,
    show_tree,
)
from tests.querystem.language.test_golden import GOLDEN, texts_of

PAPERS = Path(__file__).parents[4] / "shared" / "spec" / "golden.jsonl"
NEXMARK = {
    "bid": "itemid BIGINT, price BIGINT, bidder BIGINT",
    "oa": "itemid BIGINT, seller BIGINT, start_price BIGINT",
    "ca": "itemid BIGINT",
}
TREES = texts_of(GOLDEN / "trees.txt")


def papers() -> list[dict[str, Any]]:
    if not PAPERS.exists():
        return []
    return [json.loads(line) for line in PAPERS.read_text().splitlines()]


def streams_of(paper: dict[str, Any]) -> dict[str, StreamSchema]:
    """Return the streams of a worked answer; its numbers are whole, all else is text."""
    columns = dict(NEXMARK)
    for name, names in (paper.get("columns") or {}).items():
        rows = paper["streams"][name]
        types = ["BIGINT" if isinstance(value, int) else "TEXT" for value in rows[0]]
        columns[name] = ", ".join(
            f"{column} {kind}" for column, kind in zip(names, types, strict=False)
        )
    keys = {name: f"KEY ({', '.join(key)})" for name, key in (paper.get("keys") or {}).items()}
    return {
        name: schema_of(
            f"CREATE STREAM {name} ({text}, at TIMESTAMP) {keys.get(name, '')} ORDERED BY at"
        )
        for name, text in columns.items()
    }


def with_views(paper: dict[str, Any]) -> str:
    """Return the text of a worked answer with its views as queries of WITH."""
    views = [f"{name} AS ({text})" for name, text in (paper.get("views") or {}).items()]
    return f"WITH {', '.join(views)} {paper['sql']}" if views else str(paper["sql"])


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper["name"])
def test_texts_of_the_papers_are_bound(paper: dict[str, Any]) -> None:
    query = bind_query(with_views(paper), streams_of(paper).get)
    assert read_form(query_form(query), query.predicate_keys) == query


# ---- windows that a caller brings


def test_a_brought_window_suits_all_streams_that_take_it() -> None:
    assert window_text(bind_window("RANGE 1 HOUR", [TRADES, ALARMS])) == "RANGE 1 HOUR"
    partitioned = bind_window("ROWS 5 PARTITION BY symbol", (TRADES, QUOTES))
    assert window_text(partitioned) == "ROWS 5 PARTITION BY symbol"
    with pytest.raises(QueryError, match="no column symbol in alarms"):
        bind_window("ROWS 5 PARTITION BY symbol", [TRADES, ALARMS])
    with pytest.raises(WindowProblem, match="trades keeps a row for 30 DAYS"):
        bind_window("RANGE 31 DAYS", [ALARMS, TRADES])
    with pytest.raises(WindowProblem, match="a window of its own"):
        bind_window("RANGE 1 HOUR", [])


def test_a_brought_window_leaves_those_of_references() -> None:
    query = bind("SELECT a.price FROM trades AS a, alarms WINDOW(NOW) AS b RANGE 1 HOUR")
    brought = bind_window("RANGE 2 HOURS", [TRADES])
    windows = [window_text(leg.window) for leg in query.with_window(brought).legs]
    assert windows == ["RANGE 2 HOURS", "BEGIN NOW END NOW"]


@pytest.mark.parametrize(
    ("window", "depends"),
    [
        ("UNBOUNDED", False),
        ("BEGIN '2026-01-01' END '2026-01-02'", False),
        ("BEGIN ROW LAST - 5 END ROW LAST", False),
        ("BEGIN ROW 1 END ROW 9", False),
        ("RANGE 5 MINUTES", True),
        ("BEGIN '2026-01-01' END NOW - 1 HOUR", True),
        ("BEGIN NOW - 1 HOUR END '2026-01-01'", True),
        ("RANGE 5 MINUTES SLIDE 1 MINUTE", True),
        ("ROWS 5", True),
        ("ROWS 5 PARTITION BY symbol", True),
    ],
)
def test_some_windows_depend_on_now(window: str, depends: bool) -> None:
    assert depends_on_now(bind_window(window, TRADES)) is depends


def test_a_fixed_begin_with_an_end_at_now_depends_on_nothing_else_than_waiting() -> None:
    assert not depends_on_now(UNBOUNDED)
    assert not depends_on_now(bind_window("BEGIN '2026-01-01' END NOW", TRADES))


# ---- caches and limits


@pytest.mark.parametrize("text", TREES)
def test_a_cache_gives_the_same_tree(text: str) -> None:
    cache = TemplateCache()
    for _ in range(4):
        assert cache.bind("scope", text, lookup) == bind_query(text, lookup)


@pytest.mark.parametrize("text", TREES)
def test_a_tree_does_not_depend_on_the_case_of_words(text: str) -> None:
    if '"' not in text and "'" not in text:
        assert show_tree(bind(text.upper())) == show_tree(bind(text))


def test_outputs_of_inner_queries_do_not_grow_without_end() -> None:
    steps = [f"q{n} AS (SELECT x + x AS x FROM q{n - 1})" for n in range(1, 60)]
    text = f"WITH q0 AS (SELECT size AS x FROM trades), {', '.join(steps)} SELECT x FROM q59"
    with pytest.raises(QueryError) as caught:
        bind(text)
    assert caught.value.reason == "NESTED_TOO_DEEP"
    assert caught.value.span is not None


def test_long_chains_of_names_are_refused_in_time() -> None:
    steps = [f"q{n} AS (SELECT x FROM q{n - 1})" for n in range(1, 1000)]
    text = f"WITH q0 AS (SELECT size AS x FROM trades), {', '.join(steps)} SELECT x FROM q999"
    with pytest.raises(QueryError) as caught:
        bind(text)
    assert caught.value.reason == "NESTED_TOO_DEEP"


def test_inner_queries_count_as_parentheses_do() -> None:
    text = "SELECT size FROM trades"
    for _ in range(33):
        text = f"SELECT size FROM ({text}) AS x"
    with pytest.raises(QueryError) as caught:
        bind(text)
    assert caught.value.reason == "NESTED_TOO_DEEP"


def test_an_unknown_stream_in_a_join_is_met_with_the_nearest() -> None:
    with pytest.raises(QueryError) as caught:
        bind_query("SELECT 1 AS x FROM trades, alarm", lookup, names=lambda: STREAMS)
    assert caught.value.hint == "did you mean alarms?"
