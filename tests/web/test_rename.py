"""HTTP with columns that were renamed and dropped: rows in, answers and changes out, and what the
console reads about a stream."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tests.support.web import SQL, Reply, WebServer
from tests.web.test_changes import Page, opened, until
from tests.web.test_rows import _arrow

JSON = "application/json"


def alter(web: WebServer, tenant: str, change: str) -> None:
    sql = f"ALTER STREAM s {change}"
    reply = web.send("POST", "/v1/define", sql, SQL, tenant=tenant)
    assert reply.status == 200, reply


def post(web: WebServer, tenant: str, body: Any, content_type: str = JSON, **more: str) -> Reply:
    content = json.dumps(body) if content_type == JSON else body
    return web.send(
        "POST", "/v1/streams/s/rows", content, content_type, headers=more, tenant=tenant
    )


def rows(web: WebServer, tenant: str, path: str = "ask", **parameters: str) -> Any:
    answer = web.json(f"/v1/{path}", tenant=tenant, **parameters)
    names = [column["name"] for column in answer["columns"]]
    return [dict(zip(names, row, strict=True)) for row in answer["rows"]]


def test_rows_with_any_names(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM s (id BIGINT, a TEXT, b TEXT) KEY (id)", tenant=tenant)
    alter(web, tenant, "ADD COLUMN n BIGINT DEFAULT 7")
    alter(web, tenant, "RENAME COLUMN id TO k")
    alter(web, tenant, "RENAME COLUMN a TO c")
    alter(web, tenant, "RENAME COLUMN n TO m")
    alter(web, tenant, "DROP COLUMN b")
    bodies: list[tuple[Any, str]] = [
        ([{"k": 1, "c": "x", "m": 1}], JSON),
        ([{"id": 2, "a": "x", "b": "gone", "n": 1}], JSON),
        ([{"id": 3, "c": "x", "n": 1}], JSON),
        ('{"k": 4, "a": "x", "m": 1}\n{"k": 5, "a": "x", "m": 1}', "application/x-ndjson"),
        ("id,a,b,n\n6,x,gone,1\n", "text/csv"),
        ("k,c,m\n7,x,1\n", "text/csv"),
        (
            _arrow(pa.table({"id": [8], "a": ["x"], "b": ["gone"], "n": [1]})),
            "application/vnd.apache.arrow.stream",
        ),
        ([{"_op": "patch", "id": 8, "a": "y"}], JSON),
        ([{"_op": "delete", "id": 7}], JSON),
        ([{"id": 9, "a": "x"}, {"id": 10, "a": "x", "n": 1}], JSON),
    ]
    for body, content_type in bodies:
        reply = post(web, tenant, body, content_type)
        assert reply.status == 200, (body, reply)
    stored = rows(web, tenant, sql="SELECT * FROM s WHERE c <> 'q'")
    expected = [{"k": k, "c": "x", "m": 1} for k in range(1, 7)]
    expected += [{"k": 8, "c": "y", "m": 1}, {"k": 9, "c": "x", "m": 7}]
    expected.append({"k": 10, "c": "x", "m": 1})
    assert sorted(stored, key=lambda row: row["k"]) == expected
    assert post(web, tenant, [{"k": 1, "a": "x", "c": "x"}]).reason == "DUPLICATE_COLUMN"
    assert post(web, tenant, [{"k": 1, "a": 5}]).reason == "WRONG_TYPE"
    assert post(web, tenant, [{"k": 1, "q": 5}]).reason == "EXTRA_COLUMN"


def test_rows_of_one_body_with_both_names(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM s (id BIGINT, a TEXT)", tenant=tenant)
    alter(web, tenant, "RENAME COLUMN a TO c")
    reply = post(web, tenant, [{"id": 1, "a": "x"}, {"id": 2, "c": "y"}])
    assert reply.reason == "DUPLICATE_COLUMN"
    assert rows(web, tenant, sql="SELECT * FROM s") == []


def test_a_repeat_on_both_sides(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM s (id BIGINT, a TEXT, b TEXT)", tenant=tenant)
    once = {"idempotency-key": "one"}
    body = [{"id": 1, "a": "x", "b": "y"}]
    assert post(web, tenant, body, **once).status == 200
    alter(web, tenant, "RENAME COLUMN a TO c")
    alter(web, tenant, "DROP COLUMN b")
    reply = post(web, tenant, body, **once)
    assert reply.json()["duplicate"]
    assert rows(web, tenant, sql="SELECT * FROM s") == [{"id": 1, "c": "x"}]


def test_changes_go_on(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM s (id BIGINT, a TEXT, b TEXT) KEY (id)", tenant=tenant)
    web.register("all", "SELECT id, a FROM s WHERE a <> 'no'", tenant=tenant)
    page = Page()
    with opened(web, "all", tenant=tenant) as stream:
        post(web, tenant, [{"id": 1, "a": "x", "b": "y"}])
        until(page, stream, web, tenant, "all")
        alter(web, tenant, "RENAME COLUMN a TO c")
        alter(web, tenant, "DROP COLUMN b")
        post(web, tenant, [{"id": 2, "a": "x"}, {"id": 1, "a": "z"}])
        until(page, stream, web, tenant, "all")
    again = Page(dict(page.rows))
    post(web, tenant, [{"id": 3, "c": "no"}, {"id": 4, "c": "q"}])
    with opened(web, "all", {"last-event-id": page.token}, tenant=tenant) as stream:
        event = next(iter(stream))
        assert event.name != "whole"
        again.take(event)
        until(again, stream, web, tenant, "all")
    answer = rows(web, tenant, "answers/all")
    assert answer == [{"id": 2, "a": "x"}, {"id": 1, "a": "z"}, {"id": 4, "a": "q"}]


def test_what_the_console_reads(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM s (id BIGINT, a TEXT, b TEXT) KEY (id)", tenant=tenant)
    alter(web, tenant, "RENAME COLUMN a TO c")
    alter(web, tenant, "RENAME COLUMN id TO k")
    alter(web, tenant, "DROP COLUMN b")
    stream = web.json("/v1/streams/s", tenant=tenant)
    assert [(column["name"], column.get("former", [])) for column in stream["columns"]] == [
        ("k", ["id"]),
        ("c", ["a"]),
    ]
    assert stream["key"] == ["k"] and stream["dropped"] == ["b"]
    assert stream["sql"] == "CREATE STREAM s (k BIGINT, c TEXT)\n    KEY (k)"
