"""Rows published by HTTP: every form, compared with what answers show again."""

from __future__ import annotations

import gzip
import io
import json
import math
import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

from tests.support.web import Reply, WebServer

_TYPES = (
    "CREATE STREAM things (id BIGINT, price DOUBLE, cost DECIMAL(12,3), name TEXT, "
    "good BOOLEAN, at TIMESTAMP, day DATE)"
)
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("price", pa.float64()),
        ("cost", pa.decimal128(12, 3)),
        ("name", pa.string()),
        ("good", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
    ]
)
_TEXTS = ["", "a", "Ä\u202e", '"quoted",\n', "<img onerror=1>", "=1+1", "\\", "null", "\x01", "😀"]


def _random_table(chance: random.Random, count: int) -> pa.Table:
    def column(make: Any) -> list[Any]:
        return [None if chance.random() < 0.2 else make() for _ in range(count)]

    doubles = [0.0, -0.0, 1.5, 1e300, math.inf, -math.inf, 5.0]
    return pa.table(
        {
            "id": column(lambda: chance.choice([0, -1, 2**60 + 1, -(2**63), 2**63 - 1])),
            "price": column(lambda: chance.choice(doubles)),
            "cost": column(lambda: Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-3)),
            "name": column(lambda: chance.choice(_TEXTS)),
            "good": column(lambda: chance.random() < 0.5),
            "at": column(lambda: datetime(2026, 11, 16, 9, 0, chance.randrange(60), 7)),
            "day": column(lambda: date(2026, 1, chance.randrange(1, 29))),
        },
        schema=_SCHEMA,
    )


def _post(web: WebServer, tenant: str, body: bytes, content_type: str, **headers: str) -> Reply:
    names = {name.replace("_", "-"): text for name, text in headers.items()}
    return web.send(
        "POST", "/v1/streams/things/rows", body, content_type, headers=names, tenant=tenant
    )


def _ask(web: WebServer, tenant: str, form: str, **parameters: Any) -> Reply:
    sql = "SELECT id, price, cost, name, good, at, day FROM things ROWS 1000000"
    reply = web.get("/v1/ask", tenant=tenant, sql=sql, format=form, **parameters)
    assert reply.status == 200, reply
    return reply


def _arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [1, 40, 5000])
def test_every_form_reads_back_as_it_was(
    web: WebServer, tenant: str, seed: int, count: int
) -> None:
    """An answer's JSON, lines and Arrow are published again, and give the same rows."""
    table = _random_table(random.Random(seed), count)
    web.define(_TYPES, tenant=tenant)
    content = _arrow(table)
    reply = _post(web, tenant, content, "application/vnd.apache.arrow.stream")
    assert reply.status == 200 and reply.json()["rows"] == count
    assert _ask(web, tenant, "arrow").table().equals(table)
    names = table.schema.names
    rows = _ask(web, tenant, "json", bigint="text").json()["rows"]
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    lines = [json.loads(line) for line in _ask(web, tenant, "ndjson").body.splitlines()[1:]]
    by_lines = "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in lines)
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink)
    bodies = {
        "application/json": json.dumps(objects, ensure_ascii=False).encode(),
        "application/x-ndjson": by_lines.encode(),
        "text/csv": sink.getvalue(),
    }
    for content_type, body in bodies.items():
        form_tenant = f"{tenant}-{content_type}"
        web.define(_TYPES, tenant=form_tenant)
        reply = _post(web, form_tenant, body, content_type)
        assert reply.status == 200, reply
        assert reply.json()["rows"] == count
        assert _ask(web, form_tenant, "arrow").table().equals(table), content_type
        packed = _post(web, form_tenant, gzip.compress(body), content_type, content_encoding="gzip")
        assert packed.status == 200 and packed.json()["rows"] == count


_ROW = {
    "id": 1,
    "price": 1.5,
    "cost": "1.5",
    "name": "x",
    "good": True,
    "at": "2026-11-16T09:00:00Z",
    "day": "2026-11-16",
}


def test_an_object_is_a_row(web: WebServer, tenant: str) -> None:
    web.define(_TYPES, tenant=tenant)
    reply = _post(web, tenant, json.dumps(_ROW).encode(), "application/json")
    assert reply.json() | {"position": ""} == {
        "rows": 1,
        "position": "",
        "first_row_id": 0,
        "duplicate": False,
        "unverified": False,
    }
    position = reply.json()["position"]
    assert _ask(web, tenant, "json", least_position=position).json()["row_count"] == 1
    for body in (b"[]", b" [ ] "):
        assert _post(web, tenant, body, "application/json").json()["rows"] == 0
    assert _post(web, tenant, b"\n\n", "application/x-ndjson").json()["rows"] == 0
    assert _post(web, tenant, b"id,price,cost,name,good,at,day\n", "text/csv").status == 200


@pytest.mark.parametrize(
    ("change", "reason", "field"),
    [
        ({"id": 1.5}, "WRONG_TYPE", "id"),
        ({"id": True}, "WRONG_TYPE", "id"),
        ({"id": 2**63}, "BAD_VALUE", "id"),
        ({"id": "0x10"}, "BAD_VALUE", "id"),
        ({"id": [1]}, "WRONG_TYPE", "id"),
        ({"price": "much"}, "BAD_VALUE", "price"),
        ({"cost": "1.2345"}, "BAD_VALUE", "cost"),
        ({"name": 5}, "WRONG_TYPE", "name"),
        ({"name": "\ud800"}, "INVALID_UTF8", "name"),
        ({"good": 1}, "WRONG_TYPE", "good"),
        ({"at": 5}, "WRONG_TYPE", "at"),
        ({"at": "yesterday"}, "BAD_VALUE", "at"),
        ({"day": "2026-02-31"}, "BAD_VALUE", "day"),
        ({"more": 1}, "EXTRA_COLUMN", "more"),
        ({"_op": "delete"}, "DELETE_WITHOUT_KEY", "_op"),
        ({"_op": "patch"}, "PATCH_WITHOUT_KEY", "_op"),
        ({"_op": "burn"}, "BAD_OPERATION", "_op"),
        ({"_expected": 5}, "EXPECTED_WITHOUT_KEY", "_expected"),
        ({"_expected": 1.5}, "WRONG_TYPE", "_expected"),
    ],
)
def test_a_row_that_does_not_fit_is_named(
    web: WebServer, tenant: str, change: dict[str, Any], reason: str, field: str
) -> None:
    web.define(_TYPES, tenant=tenant)
    rows = [_ROW, _ROW | change]
    reply = _post(web, tenant, json.dumps(rows).encode(), "application/json")
    assert reply.status == 400 and reply.reason == reason
    assert (reply.json()["row"], reply.json()["field"]) == (1, field)
    lines = "\n".join(map(json.dumps, rows)).encode()
    assert _post(web, tenant, lines, "application/x-ndjson").json() == reply.json()
    assert _ask(web, tenant, "json").json()["rows"] == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "MALFORMED_ROWS"),
        (b"[", "MALFORMED_ROWS"),
        (b"[,]", "MALFORMED_ROWS"),
        (b"[{}", "MALFORMED_ROWS"),
        (b"[{},]", "MALFORMED_ROWS"),
        (b"{} {}", "MALFORMED_ROWS"),
        (b"5", "MALFORMED_ROWS"),
        (b"[5]", "MALFORMED_ROWS"),
        (b"[[]]", "MALFORMED_ROWS"),
        (b"[NaN]", "MALFORMED_ROWS"),
        (b"\xff", "INVALID_UTF8"),
        (b"[" * 100_000, "MALFORMED_ROWS"),
        (b'{"id": ' + b"9" * 5000 + b"}", "MALFORMED_ROWS"),
        (b"[{}]", "MISSING_COLUMN"),
        (b'{"\\ud800": 1}', "EXTRA_COLUMN"),
        (b'[{"a":"' + b"x" * (3 << 20) + b'"}]', "BATCH_TOO_LARGE"),
        (b'[{"price": 1e999}]', "MISSING_COLUMN"),
    ],
)
def test_bodies_that_are_no_rows_are_refused(
    web: WebServer, tenant: str, body: bytes, reason: str
) -> None:
    web.define(_TYPES, tenant=tenant)
    reply = _post(web, tenant, body, "application/json")
    assert reply.reason == reason and reply.status == (413 if "LARGE" in reason else 400)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "MALFORMED_ROWS"),
        (b"," * 100_000, "MALFORMED_ROWS"),
        (b"," * 1000, "EXTRA_COLUMN"),
        (b"id,id\n1,2\n", "DUPLICATE_COLUMN"),
        (b"id\n1\n", "MISSING_COLUMN"),
        (b"id;price\n", "EXTRA_COLUMN"),
        (b"\xff\xfe\x00\n", "EXTRA_COLUMN"),
        (b"id,price,cost,name,good,at,day\n1,2\n", "WRONG_LENGTH"),
        (b"id,price,cost,name,good,at,day\n,,,,,,\n,,,,,x,\n", "BAD_VALUE"),
        (b"id,price,cost,name,good,at,day\n,,,\xff,,,\n", "BAD_VALUE"),
        (b'id,price,cost,name,good,at,day\n,,,"x,,,\n', "WRONG_LENGTH"),
    ],
)
def test_csv_that_does_not_fit_is_refused(
    web: WebServer, tenant: str, body: bytes, reason: str
) -> None:
    web.define(_TYPES, tenant=tenant)
    reply = _post(web, tenant, body, "text/csv")
    assert reply.status == 400 and reply.reason == reason


def test_a_number_past_the_range_of_double_is_refused(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM things (price DOUBLE)", tenant=tenant)
    assert _post(web, tenant, b'{"price": 1e999}', "application/json").reason == "BAD_VALUE"
    assert _post(web, tenant, b'{"price": "Infinity"}', "application/json").status == 200


def test_deletes_need_only_the_key(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM things (id BIGINT, name TEXT) KEY (id)", tenant=tenant)
    rows = [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]
    assert _post(web, tenant, json.dumps(rows).encode(), "application/json").status == 200
    lines = b'{"_op": "delete", "id": 1}\n{"_op": "row", "id": 2, "name": null}\n'
    assert _post(web, tenant, lines, "application/x-ndjson").json()["rows"] == 2
    answer = web.json("/v1/ask", tenant=tenant, sql="SELECT id, name FROM things ROWS 10")
    assert answer["rows"] == [[2, None]]
    assert _post(web, tenant, b"_op,id\ndelete,2\n", "text/csv").status == 200
    answer = web.json("/v1/ask", tenant=tenant, sql="SELECT id, name FROM things ROWS 10")
    assert answer["rows"] == []


def test_a_batch_with_a_sequence_counts_once(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM things (id BIGINT)", tenant=tenant)

    def send(body: bytes, sequence: str) -> Reply:
        named = {"psoup_publisher": "shop", "psoup_sequence": sequence}
        return _post(web, tenant, body, "application/json", **named)

    first = send(b'{"id": 1}', "1").json()
    again = send(b'[{"id":1}]', "1").json()
    assert again == first | {"duplicate": True}
    reused = send(b'{"id": 2}', "1")
    assert reused.status == 422 and reused.reason == "SEQUENCE_REUSED"
    assert send(b'{"id": 2}', "3").reason == "SEQUENCE_GAP"
    for sequence in ("-1", "x", "", "9" * 30):
        assert send(b'{"id": 2}', sequence).status == 400
    assert _post(web, tenant, b"{}", "application/json", psoup_sequence="1").status == 400


def test_a_batch_with_a_key_counts_once(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM things (id BIGINT)", tenant=tenant)

    def send(body: bytes, key: str, **headers: str) -> Reply:
        return _post(web, tenant, body, "application/json", idempotency_key=key, **headers)

    first = send(b'{"id": 1}', "k").json()
    assert send(b' [{"id":1}]', "k").json() == first | {"duplicate": True}
    reused = send(b'{"id": 2}', "k")
    assert reused.status == 422 and reused.reason == "SEQUENCE_REUSED"
    assert send(b'{"id": 2}', "other").json()["duplicate"] is False
    assert send(b'{"id": 2}', "x" * 300).reason == "NAME_TOO_LONG"
    both = send(b'{"id": 2}', "k", psoup_publisher="shop", psoup_sequence="1")
    assert both.status == 400 and both.json()["field"] == "Idempotency-Key"
    entries = web.json("/v1/publishers", tenant=tenant)["publishers"]
    assert {entry["name"] for entry in entries} == {"http/main/k", "http/main/other"}
    assert {entry["lease_seconds"] for entry in entries} == {86400}


def test_bodies_are_bounded(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM things (id BIGINT)", tenant=tenant)
    limit = web.settings.message_bytes
    large = b" " * (limit + 1)
    for body in (large, iter([large[: limit // 2]] * 3)):
        reply = _post(web, tenant, body, "application/json")  # type: ignore[arg-type]
        assert reply.status == 413 and reply.reason == "BODY_TOO_LARGE"
    packed = gzip.compress(b" " * (limit * 4))
    reply = _post(web, tenant, packed, "application/json", content_encoding="gzip")
    assert reply.status == 413 and reply.reason == "BODY_TOO_LARGE"
    damaged = _post(web, tenant, b"no gzip", "application/json", content_encoding="gzip")
    assert damaged.status == 400
    unknown = _post(web, tenant, b"{}", "application/json", content_encoding="br")
    assert unknown.status == 415
    assert _post(web, tenant, b"{}", "application/x-protobuf").status == 415


def test_rows_may_leave_an_added_column_out(web: WebServer, tenant: str) -> None:
    """Each form, in rows that have it and rows that do not, and in chunks where none has."""
    web.define("CREATE STREAM s (a BIGINT)", tenant=tenant)
    web.define("ALTER STREAM s ADD COLUMN b DECIMAL(6,2) DEFAULT 1.25", tenant=tenant)
    web.define("ALTER STREAM s ADD COLUMN c DATE DEFAULT DATE '2026-01-02'", tenant=tenant)
    rows: list[dict[str, Any]] = [{"a": number} for number in range(3000)]
    rows[1]["b"], rows[2]["c"], rows[2999]["b"] = "7.5", None, None
    bodies = {
        "application/json": json.dumps(rows),
        "application/x-ndjson": "\n".join(map(json.dumps, rows)),
        "text/csv": "a\n" + "\n".join(str(row["a"]) for row in rows),
    }
    for content_type, body in bodies.items():
        reply = web.send("POST", "/v1/streams/s/rows", body.encode(), content_type, tenant=tenant)
        assert reply.status == 200, reply
    sql = "SELECT b, c, count(*) AS n FROM s GROUP BY b, c"
    groups = web.get("/v1/ask", tenant=tenant, sql=sql, format="json").json()["rows"]
    assert sorted(groups, key=str) == sorted(
        [
            ["1.25", "2026-01-02", 8994],
            ["7.50", "2026-01-02", 2],
            ["1.25", None, 2],
            [None, "2026-01-02", 2],
        ],
        key=str,
    )
    reply = web.send(
        "POST", "/v1/streams/s/rows", b'[{"b": "1"}]', "application/json", tenant=tenant
    )
    assert reply.status == 400 and reply.json()["reason"] == "MISSING_COLUMN"


@pytest.mark.parametrize("media", ["application/json", "text/csv"])
def test_an_edit_that_expects_another_row_is_a_conflict(
    web: WebServer, tenant: str, media: str
) -> None:
    sql = "CREATE STREAM orders (id BIGINT, item TEXT) KEY (id)"
    web.define(sql, tenant=tenant)

    def edit(item: str, expected: int) -> Any:
        row = {"id": 1, "item": item, "_expected": expected}
        lines = f"{','.join(row)}\n1,{item},{expected}\n"
        body = json.dumps(row) if media == "application/json" else lines
        path = "/v1/streams/orders/rows"
        return web.send("POST", path, body.encode(), media, tenant=tenant)

    first = edit("lamp", -1).json()["first_row_id"]
    assert edit("two lamps", first).json()["first_row_id"] == first + 1
    reply = edit("three lamps", first)
    assert (reply.status, reply.reason) == (409, "CONFLICT_ROW")
    problem = reply.json()
    assert (problem["row"], problem["field"], problem["got"]) == (0, "_expected", str(first + 1))
    assert problem["current"] | {"ts": ""} == {
        "row_id": first + 1,
        "ts": "",
        "id": 1,
        "item": "two lamps",
    }


def test_a_patch_sets_the_fields_that_it_has(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM orders (id BIGINT, item TEXT, total BIGINT) KEY (id)", tenant=tenant)

    def send(body: str, media: str = "application/json") -> Any:
        return web.send("POST", "/v1/streams/orders/rows", body.encode(), media, tenant=tenant)

    send(json.dumps([{"id": 1, "item": "lamp", "total": 5}, {"id": 2, "item": "bed", "total": 9}]))
    assert send('{"id": 1, "total": 6, "_op": "patch"}').status == 200
    assert send("id,item,_op\n2,sofa,patch\n", "text/csv").status == 200
    rows = '{"id": 1, "item": null, "_op": "patch"}\n{"id": 2, "item": "chair", "_op": "patch"}\n'
    assert send(rows, "application/x-ndjson").status == 200
    others = [{"id": 1, "item": "x", "_op": "patch"}, {"id": 2, "total": 1, "_op": "patch"}]
    reply = send(json.dumps(others))
    assert (reply.status, reply.reason, reply.json()["row"]) == (400, "MISSING_COLUMN", 1)
    beside = [{"id": 1, "item": "x", "_op": "patch"}, {"id": 2, "item": "y", "total": 1}]
    assert send(json.dumps(beside)).reason == "MISSING_COLUMN"
    reply = send('{"id": 3, "total": 6, "_op": "patch"}')
    assert reply.reason == "NO_CURRENT_ROW" and reply.json()["row"] == 0
    sql = "SELECT id, item, total FROM orders"
    rows = web.get("/v1/ask", tenant=tenant, sql=sql, format="json").json()["rows"]
    assert {str(row[0]): row[1:] for row in rows} == {"1": [None, 6], "2": ["chair", 9]}
