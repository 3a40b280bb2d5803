"""Changes as server-sent events: a page that applies them has the answer, after every `end`."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import pyarrow as pa
import pytest

from datastem.instants import FOR_EVER, SINCE_EVER
from datastem.schema import Column
from datastem.types import BIGINT, DOUBLE, TEXT, TIMESTAMP, decimal_type
from psoup.answers.difference.copier import CopyChunk
from psoup.server.wire.copies import row_part
from psoup.server.wire.sync_rows import sync_rows
from psoup.v1 import psoup_pb2 as pb
from psoup.web.changes import Events, _removals
from results.id_sets import to_runs
from tests.support.web import SQL, WebServer

JSON = "application/json"


@dataclass(frozen=True)
class Event:
    name: str
    data: Any
    id: str


class EventStream:
    """An open response, read event by event."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response

    def __iter__(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        while line := self.response.readline():
            text = line.decode().rstrip("\n")
            if not text:
                if fields:
                    yield Event(fields["event"], json.loads(fields["data"]), fields.get("id", ""))
                fields = {}
            elif not text.startswith(":"):
                name, _, value = text.partition(": ")
                fields[name] = value


@contextmanager
def opened(
    web: WebServer, key: str, headers: dict[str, str] | None = None, **parameters: Any
) -> Iterator[EventStream]:
    connection = web.connection()
    query = urlencode(parameters, quote_via=quote)
    credential = {"authorization": f"Bearer {web.token}"} if web.token else {}
    connection.request(
        "GET", f"/v1/answers/{key}/changes?{query}", headers={**credential, **(headers or {})}
    )
    response = connection.getresponse()
    try:
        assert response.status == 200, response.read()
        assert response.getheader("content-type") == "text/event-stream"
        yield EventStream(response)
    finally:
        connection.close()


@dataclass
class Page:
    """What a page does, naively: it stages events, and applies them at `end`."""

    rows: dict[str, Any] = field(default_factory=dict)
    staged: list[Event] = field(default_factory=list)
    token: str = ""
    ends: int = 0

    def take(self, event: Event) -> None:
        if event.name in ("whole", "drop"):
            self.staged = []
        if event.name != "end":
            self.staged.append(event)
            return
        for change in self.staged:
            match change.name:
                case "whole":
                    self.rows = {}
                case "row":
                    self.rows[change.data["id"]] = change.data
                case "gone":
                    for row_id in change.data["ids"]:
                        self.rows.pop(row_id, None)
        self.staged, self.token = [], event.id
        self.ends += 1
        assert event.data["rows"] >= len(self.visible(event.data["now"]))

    def visible(self, now: str) -> list[list[Any]]:
        return [
            row["row"]
            for row in self.rows.values()
            if (row["visible_from"] or "") <= now < (row["visible_until"] or "9")
        ]


def publish(web: WebServer, tenant: str, rows: list[dict[str, Any]]) -> None:
    reply = web.send("POST", "/v1/streams/things/rows", json.dumps(rows), JSON, tenant=tenant)
    assert reply.status == 200, reply


def until(page: Page, stream: EventStream, web: WebServer, tenant: str, key: str) -> None:
    """Read events until the page shows the answer."""
    answer = web.json(f"/v1/answers/{key}", tenant=tenant)
    for event in stream:
        page.take(event)
        if event.name == "end" and event.data["position"] >= answer["position"]:
            break
    assert sorted(page.visible(answer["now"])) == sorted(answer["rows"])


@pytest.mark.parametrize("many", [5, 500])
def test_a_page_follows_an_answer(web: WebServer, tenant: str, many: int) -> None:
    """Many rows come as Arrow inside the server, few as typed values."""
    chance = random.Random(many)
    web.define("CREATE STREAM things (id BIGINT, name TEXT) KEY (id)", tenant=tenant)
    web.register("all", "SELECT id, name FROM things WHERE id >= 0 RANGE 1 HOUR", tenant=tenant)
    page = Page()
    publish(web, tenant, [{"id": n, "name": "\u2028<b>"} for n in range(many)])
    with opened(web, "all", tenant=tenant) as stream:
        until(page, stream, web, tenant, "all")
        for _ in range(5):
            ids = chance.sample(range(2 * many), many)
            publish(web, tenant, [{"id": n, "name": f"new {n}\n"} for n in ids])
            until(page, stream, web, tenant, "all")
            deleted = [{"_op": "delete", "id": n} for n in chance.sample(range(2 * many), many)]
            publish(web, tenant, deleted)
            until(page, stream, web, tenant, "all")
    publish(web, tenant, [{"id": 9999, "name": None}])
    # A browser that connects again sends the id of the last event.
    for headers, parameters in (
        ({"last-event-id": page.token}, {"since": "00"}),
        ({}, {"since": page.token}),
    ):
        again = Page(dict(page.rows))
        with opened(web, "all", headers, tenant=tenant, **parameters) as stream:
            event = next(iter(stream))
            assert event.name != "whole"
            again.take(event)
            until(again, stream, web, tenant, "all")


def test_rows_say_when_they_leave(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM things (id BIGINT)", tenant=tenant)
    web.register("new", "SELECT id FROM things RANGE 2 SECONDS", tenant=tenant)
    publish(web, tenant, [{"id": 1}])
    page = Page()
    with opened(web, "new", tenant=tenant) as stream:
        for event in stream:
            page.take(event)
            if page.ends:
                break
    (row,) = page.rows.values()
    now = web.json("/v1/answers/new", tenant=tenant)["now"]
    assert row["visible_until"] > row["visible_from"] and page.visible(row["visible_from"])
    while now < row["visible_until"]:
        time.sleep(0.1)
        now = web.json("/v1/answers/new", tenant=tenant)["now"]
    assert page.visible(now) == web.json("/v1/answers/new", tenant=tenant)["rows"] == []


def test_beats_and_errors(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM things (id BIGINT)", tenant=tenant)
    assert web.get("/v1/answers/none/changes", tenant=tenant).status == 404
    web.register("all", "SELECT id FROM things ROWS 5", tenant=tenant)
    assert web.get("/v1/answers/all/changes", tenant=tenant, since="x").status == 400
    assert web.get("/v1/answers/all/changes", tenant=tenant, window="x").status == 400
    with opened(web, "all", {"last-event-id": "garbage"}, tenant=tenant, beat="1s") as stream:
        names = []
        for event in stream:
            names.append(event.name)
            if event.name == "whole":
                assert event.data["reason"] == "unreadable_token"
            if event.name == "beat":
                break
        assert names == ["whole", "end", "beat"]
        assert web.send("DELETE", "/v1/registrations/all", tenant=tenant).status == 200
        *_, last = stream
    assert last.name == "error" and last.data["reason"] == "UNKNOWN_HANDLE"


def test_a_stream_that_is_dropped_ends_with_an_error(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM things (id BIGINT)", tenant=tenant)
    web.register("all", "SELECT id FROM things ROWS 5", tenant=tenant)
    with opened(web, "all", tenant=tenant) as stream:
        events = iter(stream)
        next(events)
        web.send("POST", "/v1/define", "DROP STREAM things", SQL, tenant=tenant)
        *_, last = events
    assert last.name == "error" and last.data["status"] == 409


def test_streams_that_nobody_reads_end(web: WebServer, tenant: str) -> None:
    web.define("CREATE STREAM things (id BIGINT)", tenant=tenant)
    web.register("all", "SELECT id FROM things ROWS 5", tenant=tenant)
    watches = web.server.core.watches
    token = ""
    with opened(web, "all", tenant=tenant) as stream:
        for event in stream:
            token = event.id
            if event.name == "end":
                break
        assert len(watches) == 1
    # Nothing is new, so the first event would be a beat.
    reply = web.send("HEAD", "/v1/answers/all/changes", tenant=tenant, since=token)
    assert reply.status == 200 and not reply.body

    async def ended() -> bool:
        while len(watches):
            await asyncio.sleep(0.01)
        return True

    assert web.run(ended())


# ---- the two ways in which rows become events


async def test_rows_in_columns_are_those_of_messages() -> None:
    columns = [
        Column("id", BIGINT),
        Column("x", DOUBLE),
        Column("t", TEXT),
        Column("at", TIMESTAMP),
        Column("d", decimal_type(20, 9)),
    ]
    chance = random.Random(1)
    count = 100
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([chance.choice([None, 1, 2**60]) for _ in range(count)], pa.int64()),
            pa.array([chance.choice([None, 1.0, float("nan"), -0.0]) for _ in range(count)]),
            pa.array([chance.choice([None, "", 'a"\n', "\x01Ä😀"]) for _ in range(count)]),
            pa.array([chance.choice([None, 0, 10**15]) for _ in range(count)], pa.int64()).view(
                TIMESTAMP.arrow
            ),
            pa.array([None] * count, pa.decimal128(20, 9)),
        ],
        names=[column.name for column in columns],
    )
    ids = np.arange(count, dtype=np.int64) * 2**50
    for keys in (None, -ids):
        chunk = CopyChunk(
            ids=ids,
            visible_from=np.where(ids % 3 == 0, SINCE_EVER, ids // 2**40).astype(np.int64),
            visible_until=np.where(ids % 5 == 0, FOR_EVER, ids // 2**40 + 5).astype(np.int64),
            sort_keys=pa.array([b""] * count, pa.binary()),
            rows=rows,
            keys=keys,
        )
        for bigint_text in (False, True):
            events = Events(bigint_text=bigint_text)
            typed = await events.of(pb.SyncPart(rows=sync_rows(chunk, columns)))
            arrow = row_part(chunk, columns, pb.ENCODING_ARROW)
            assert arrow.WhichOneof("part") == "arrow"
            assert b"".join(await events.of(arrow)) == b"".join(typed)


@pytest.mark.parametrize("seed", range(20))
def test_ids_that_leave_are_those_of_the_runs(seed: int) -> None:
    chance = random.Random(seed)
    ids = sorted(chance.sample(range(10_000), 3_000))
    ended = sorted(chance.sample(ids, 500))
    removed = pb.Removed(runs=to_runs(np.array(ids)), ended=to_runs(np.array(ended)))
    events = [json.loads(piece.split(b"data: ")[1]) for piece in _removals(removed)]
    assert [int(row_id) for event in events for row_id in event["ids"]] == ids
    assert [int(row_id) for event in events for row_id in event["ended"]] == ended
    for event in events:
        assert set(event["ended"]) <= set(event["ids"])
