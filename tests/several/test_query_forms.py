"""Queries that read columns of the queries around them, through a server: invoked and kept as
copies, beside SQLite over the rows that were published."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from tests.oracle.copy import Copy
from tests.support.server.callers import NamedCaller, open_server

_NAMES = "abc"
TEXTS = (
    "SELECT t.a, (SELECT u.b FROM u WHERE u.a > t.a ORDER BY u.b NULLS LAST LIMIT 1) AS v FROM t",
    "SELECT t.a FROM t WHERE t.b IN (SELECT u.b + t.c - 3 FROM u)",
    "SELECT t.a, (SELECT count(*) + t.b FROM u WHERE u.a < t.a) AS v FROM t",
    "SELECT t.a FROM t WHERE EXISTS (SELECT max(u.a) AS m FROM u WHERE u.b > t.b GROUP BY u.c"
    " HAVING count(*) > 1)",
    "SELECT t.a FROM t WHERE EXISTS (SELECT u.a FROM u WHERE u.a < t.a AND EXISTS"
    " (SELECT 1 AS o FROM t AS x WHERE x.b = u.b AND x.c <> t.c))",
    "SELECT t.a FROM t WHERE t.a NOT IN (SELECT u.a FROM u WHERE u.b > t.b UNION"
    " SELECT u.c FROM u WHERE u.c < t.c)",
    "SELECT t.a, x.b FROM t JOIN u AS x ON x.a = t.a AND EXISTS"
    " (SELECT 1 AS o FROM u AS y WHERE y.c > t.c)",
    "SELECT t.a IN (SELECT u.b FROM u) AS k, count(*) AS n FROM t GROUP BY k",
    "SELECT t.a, count(*) AS n, (SELECT max(u.b + t.a) FROM u WHERE u.a > t.a) AS v FROM t"
    " GROUP BY t.a",
    "SELECT t.a FROM t WHERE EXISTS (SELECT n.m FROM (SELECT max(b) AS m FROM u WHERE c < t.c) AS n"
    " WHERE n.m > t.b)",
)


def columns(random: np.random.Generator, count: int) -> dict[str, list[int]]:
    return {name: [int(value) for value in random.integers(0, 6, count)] for name in _NAMES}


def expected(text: str, published: dict[str, list[dict[str, list[int]]]]) -> list[Any]:
    with sqlite3.connect(":memory:") as lite:
        for name, batches in published.items():
            lite.execute(f"CREATE TABLE {name} (a, b, c)")
            for batch in batches:
                rows = list(zip(*batch.values(), strict=True))
                lite.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
        rows = lite.execute(text).fetchall()
    return sorted(map(repr, [row[0] if len(row) == 1 else row for row in rows]))


def plain(rows: list[Any]) -> list[str]:
    """Return rows in order, with truth values as numbers."""

    def number(value: Any) -> Any:
        return int(value) if isinstance(value, bool) else value

    return sorted(
        repr(tuple(map(number, row)) if isinstance(row, tuple) else number(row)) for row in rows
    )


async def test_differential_forms_through_a_server_and_copies(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    published: dict[str, list[dict[str, list[int]]]] = {"t": [], "u": []}
    async with open_server(tmp_path / "store") as (_, stub):
        caller = NamedCaller(stub)
        for name in published:
            await caller.define(f"CREATE STREAM {name} (a BIGINT, b BIGINT, c BIGINT)")
        handles = [await caller.register(text) for text in TEXTS]
        copies = [Copy() for _ in TEXTS]
        for count in (0, 3, 8, 2):
            for name, batches in published.items():
                batch = columns(random, count)
                if count:
                    batches.append(batch)
                    await caller.publish(name, **batch)
            for text, handle, copy in zip(TEXTS, handles, copies, strict=True):
                rows = expected(text, published)
                assert plain((await caller.invoke(handle))[1]) == rows, text
                assert plain(await caller.ask(text)) == rows, text
                await caller.sync(handle, copy)
                assert plain(rows_of_copy(copy)) == rows, text


def rows_of_copy(copy: Copy) -> list[Any]:
    """Return the rows of a copy: those of one column as its values."""
    return [row[0] if len(row) == 1 else tuple(row) for row in copy.answer(copy.now)]
