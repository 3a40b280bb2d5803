"""Resources of the web port show what the calls of gRPC answer."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from psoup.v1 import psoup_pb2 as pb
from tests.support.web import SQL, WebServer

_TRADES = "CREATE STREAM trades (symbol TEXT, price DOUBLE, size BIGINT)"
_COLUMNS = ["symbol", "price", "size"]
_ROWS = [("IBM", 184.5, 2**60), ("<b>", None, -1), ("Ä\u202e", float("nan"), 0)]


def _published(web: WebServer, tenant: str, rows: list[Any] = _ROWS) -> None:
    web.define(_TRADES, tenant=tenant)
    values = [
        pb.Row(
            values=[
                pb.Value(text=symbol),
                pb.Value() if price is None else pb.Value(double=price),
                pb.Value(bigint=size),
            ]
        )
        for symbol, price, size in rows
    ]
    web.stub.Publish(
        pb.PublishRequest(
            tenant=tenant, stream="trades", rows=pb.Rows(columns=_COLUMNS, rows=values)
        )
    )


def test_status_shows_what_the_call_says(web: WebServer) -> None:
    status = web.json("/v1/status")
    message = web.stub.Status(pb.StatusRequest())
    assert status["store_id"] == message.store_id
    assert status["limits"]["message_bytes"] == message.limits.message_bytes
    assert web.get("/v1/clock").status == 200


def test_streams_are_listed_and_described(web: WebServer, tenant: str) -> None:
    _published(web, tenant)
    (listed,) = web.json("/v1/streams", tenant=tenant)["streams"]
    stream = web.json("/v1/streams/trades", tenant=tenant)
    assert listed["name"] == stream["name"] == "trades"
    size = {
        "name": "size",
        "type": "BIGINT",
        "optional": False,
        "default": None,
        "former": [],
    }
    assert stream["columns"][2] == size
    assert stream["row_count"] == 3 and stream["stats"]["log_bytes"] > 0
    # Past 2^53 a number of JSON would be rounded by JavaScript.
    message = web.stub.DescribeStream(pb.DescribeStreamRequest(tenant=tenant, name="trades"))
    assert int(stream["id"]) == message.id
    assert web.get("/v1/streams/bonds", tenant=tenant).reason == "UNKNOWN_STREAM"
    assert web.json("/v1/views", tenant=tenant)["views"] == []


def test_ask_answers_by_get_and_by_post(web: WebServer, tenant: str) -> None:
    _published(web, tenant)
    sql = "SELECT symbol, price, size FROM trades WHERE size >= :least ROWS 10"
    by_get = web.json("/v1/ask", tenant=tenant, sql=sql, p__least=0)
    by_post = web.send("POST", "/v1/ask", sql, SQL, tenant=tenant, p__least="0").json()
    assert by_get["rows"] == by_post["rows"] == [["IBM", 184.5, 2**60], ["Ä\u202e", "NaN", 0]]
    assert by_get["columns"] == [
        {"name": "symbol", "type": "TEXT"},
        {"name": "price", "type": "DOUBLE"},
        {"name": "size", "type": "BIGINT"},
    ]
    as_text = web.json("/v1/ask", tenant=tenant, sql=sql, p__least=0, bigint="text")
    assert as_text["rows"][0] == ["IBM", 184.5, str(2**60)]
    typed = web.json("/v1/ask", **{"tenant": tenant, "sql": sql, "p.least:bigint": "1"})
    assert [row[0] for row in typed["rows"]] == ["IBM"]


def test_an_answer_takes_window_limit_and_as_of(web: WebServer, tenant: str) -> None:
    _published(web, tenant)
    web.register("dear", "SELECT symbol FROM trades RANGE 10 MINUTES", tenant=tenant)
    whole = web.json("/v1/answers/dear", tenant=tenant)
    assert [row[0] for row in whole["rows"]] == ["IBM", "<b>", "Ä\u202e"]
    assert whole["window"]["begin"] < whole["now"] == whole["window"]["end"]
    assert not whole["truncated"] and whole["row_count"] == 3
    cut = web.json("/v1/answers/dear", tenant=tenant, limit=2)
    assert cut["rows"] == [["IBM"], ["<b>"]] and cut["truncated"] and cut["row_count"] == 3
    assert web.json("/v1/answers/dear", tenant=tenant, limit=0)["rows"] == []
    newest = web.json("/v1/answers/dear", tenant=tenant, window="ROWS 1")
    assert newest["rows"] == [["Ä\u202e"]]
    past = web.json("/v1/answers/dear", tenant=tenant, as_of="2026-01-01T00:00:00Z")
    assert past["rows"] == [] and past["now"] == "2026-01-01T00:00:00.000000Z"
    today = web.json("/v1/answers/dear", tenant=tenant, as_of=whole["now"], knowledge="today")
    assert today["rows"] == whole["rows"]
    handle = web.json("/v1/registrations/dear", tenant=tenant)["handle"]
    assert web.json(f"/v1/answers/{handle}", tenant=tenant)["rows"] == whole["rows"]


def test_an_answer_that_is_known_is_not_sent_again(web: WebServer, tenant: str) -> None:
    _published(web, tenant)
    web.register("dear", "SELECT symbol FROM trades RANGE 10 MINUTES", tenant=tenant)
    first = web.get("/v1/answers/dear", tenant=tenant)
    headers = {"if-none-match": first.headers["etag"]}
    again = web.send("GET", "/v1/answers/dear", headers=headers, tenant=tenant)
    assert again.status == 304 and not again.body
    csv = web.send("GET", "/v1/answers/dear", headers=headers, tenant=tenant, format="csv")
    assert csv.status == 200
    more = pb.Rows(
        columns=_COLUMNS, rows=[pb.Row(values=[pb.Value(text="new"), pb.Value(), pb.Value()])]
    )
    web.stub.Publish(pb.PublishRequest(tenant=tenant, stream="trades", rows=more))
    changed = web.send("GET", "/v1/answers/dear", headers=headers, tenant=tenant)
    assert changed.status == 200 and changed.json()["row_count"] == 4


def test_registrations_are_listed_filtered_explained_and_ended(web: WebServer, tenant: str) -> None:
    _published(web, tenant)
    web.register("dear", "SELECT symbol FROM trades WHERE price > 100 ROWS 5", tenant=tenant)
    web.register("cheap", "SELECT symbol FROM trades WHERE price < 9 ROWS 5", tenant=tenant)
    page = web.json("/v1/registrations", tenant=tenant, page_size=1)
    assert len(page["registrations"]) == 1
    next_page = web.json("/v1/registrations", tenant=tenant, page=page["next_page_token"])
    keys = {entry["client_key"] for entry in page["registrations"] + next_page["registrations"]}
    assert keys == {"dear", "cheap"}
    (entry,) = web.json("/v1/registrations", tenant=tenant, contains="9 rows")["registrations"]
    assert entry["client_key"] == "cheap"
    assert web.get("/v1/registrations", tenant=tenant, stream="bonds").reason == "UNKNOWN_STREAM"
    run = web.json("/v1/registrations/dear/explain", tenant=tenant)["run"]
    assert {stage["name"] for stage in run["stages"]} >= {"plan", "match"}
    explained = web.json("/v1/explain", tenant=tenant, sql="SELECT symbol FROM trades ROWS 5")
    assert explained["operator"]["name"] == "select"
    by_post = web.send("POST", "/v1/explain", "SELECT symbo FROM trades ROWS 5", SQL, tenant=tenant)
    assert by_post.reason == "UNKNOWN_COLUMN" and by_post.json()["column"] == 8
    ended = web.send("DELETE", "/v1/registrations/dear", tenant=tenant)
    assert ended.status == 200
    assert web.get("/v1/answers/dear", tenant=tenant).status == 404


def test_a_taken_key_is_a_conflict_unless_it_may_be_replaced(web: WebServer, tenant: str) -> None:
    _published(web, tenant)
    path, sql = "/v1/registrations/dear", "SELECT symbol FROM trades ROWS 5"
    assert web.send("PUT", path, sql, SQL, tenant=tenant).status == 201
    assert web.send("PUT", path, sql, SQL, tenant=tenant).status == 200
    sql = "SELECT price FROM trades ROWS 5"
    assert web.send("PUT", path, sql, SQL, tenant=tenant).status == 409
    replaces = {"if-match": "*"}
    replaced = web.send("PUT", path, sql, SQL, headers=replaces, tenant=tenant)
    assert replaced.status == 200 and replaced.json()["replaced"]


@pytest.mark.parametrize("path", ["/v1/keys", "/v1/grants", "/v1/quotas", "/v1/audit"])
def test_people_are_shown(web: WebServer, tenant: str, path: str) -> None:
    assert web.get(path, tenant=tenant).status == 200


def test_a_timeout_ends_a_request(web: WebServer, tenant: str) -> None:
    _published(web, tenant)
    reply = web.get("/v1/ask", tenant=tenant, sql="SELECT symbol FROM trades ROWS 5", timeout="0s")
    assert reply.status == 504


@pytest.mark.parametrize(
    "key",
    [
        "a/b",
        "a%2Fb",
        "..",
        "?",
        "<img src=x onerror=alert(1)>",
        "\u202egnp",
        "ключ 😀",
        "a&b=c#d;e",
    ],
)
def test_keys_may_be_any_text(web: WebServer, tenant: str, key: str) -> None:
    _published(web, tenant)
    path = quote(key, safe="")
    web.register(path, "SELECT symbol AS name FROM trades ROWS 5", tenant=tenant)
    assert web.json(f"/v1/registrations/{path}", tenant=tenant)["client_key"] == key
    rows = web.json(f"/v1/answers/{path}", tenant=tenant)["rows"]
    assert rows == [["IBM"], ["<b>"], ["Ä\u202e"]]
    (entry,) = web.json("/v1/registrations", tenant=tenant)["registrations"]
    assert entry["client_key"] == key
    # A browser shows none of it as a page.
    reply = web.get(f"/v1/answers/{path}", tenant=tenant)
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("key", ["a%00b", "a%0d%0ab", "%1b", "x" * 300])
def test_keys_that_can_not_be_names_are_refused(web: WebServer, tenant: str, key: str) -> None:
    _published(web, tenant)
    sql = "SELECT symbol FROM trades ROWS 5"
    reply = web.send("PUT", f"/v1/registrations/{key}", sql, SQL, tenant=tenant)
    assert reply.status == 400 and reply.reason in ("BAD_NAME", "NAME_TOO_LONG")
