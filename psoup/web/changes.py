"""Live changes of an answer as server-sent events: a Watch of one item, with its changes.

| event   | data                                                                             |
|---------|----------------------------------------------------------------------------------|
| `whole` | what follows replaces everything: why, the columns                               |
| `drop`  | what came since the last `end` is void                                           |
| `gone`  | ids of rows that leave; `ended`: those of them whose key was updated or deleted  |
| `row`   | a row to put in place of the one with its id or key, and when it is visible      |
| `end`   | what came before holds from now on; the event's id is the token to go on from    |
| `beat`  | nothing is new                                                                   |
| `error` | a problem; it is the last event                                                  |
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import Message
from google.rpc import status_pb2

from datastem.codec import KEY_FIELD
from psoup.formats.json_rows import instant_texts, joined, row_texts
from psoup.v1 import psoup_pb2 as pb
from psoup.web.exchange import EVENTS, Headers, Request, Response
from psoup.web.gateway import Gateway, Make
from psoup.web.plain_messages import enum_name, plain_instant, plain_micros, plain_value
from psoup.web.problems import RefusedCall

# How long a response waits for its first event. What is refused until then is so by its status.
_FIRST_SECONDS = 0.25
_EVENT_IDS = 1000
_MAX_SAFE_INTEGER = 2**53
_HEADERS: Headers = [
    ("content-type", EVENTS),
    ("cache-control", "no-store"),
    # Some proxies would keep events until they have enough of them.
    ("x-accel-buffering", "no"),
]
# Columns of a part in Arrow that are not the answer's, but for the key.
_ROW_ID, _FROM, _UNTIL = "_row_id", "_visible_from", "_visible_until"
_OWN_COLUMNS = (_ROW_ID, _FROM, _UNTIL, "_checksum", "_sort_key")


async def changes(gateway: Gateway, request: Request, make: Make) -> Response:
    """Return the events of a Watch of one item. Raise RefusedCall if that is refused at once."""
    events = Events(bigint_text=request.parameters.choice("bigint", ("text", "number")) == "text")
    parts = gateway.stream(request, "Watch", make)
    first = asyncio.ensure_future(anext(parts, None))
    try:
        await asyncio.wait([first], timeout=_FIRST_SECONDS)
        part = first.result() if first.done() else None
        if part is not None and part.HasField("refused"):
            raise _refusal(part.refused)
    except BaseException:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await parts.aclose()
        raise
    return Response(200, _HEADERS, pieces=_streamed(events, first, parts))


async def _streamed(
    events: Events,
    first: asyncio.Future[Any],
    parts: AsyncGenerator[pb.SyncPart, None],
) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(parts):
            # Something to read, so that a client knows at once that the stream is open.
            yield b": changes\n\n"
            part = await first
            while part is not None:
                for piece in await events.of(part):
                    yield piece
                if events.ended:
                    return
                part = await anext(parts, None)
    except RefusedCall as refused:
        yield event("error", refused.problem())
    finally:
        first.cancel()


def event(name: str, data: Any, token: bytes = b"") -> bytes:
    """Return an event; `token` is its id."""
    identity = f"id: {token.hex()}\n" if token else ""
    return f"{identity}event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


class Events:
    """The events of the parts of one item, in order. `ended` is set by a refusal."""

    def __init__(self, *, bigint_text: bool = False) -> None:
        self._bigint_text = bigint_text
        self._staged = False
        self.ended = False

    async def of(self, part: pb.SyncPart) -> Iterator[bytes]:
        """Return the events of a part, in pieces of several."""
        match part.WhichOneof("part"):
            case "begin":
                return iter(self._begin(part.begin))
            case "removed":
                self._staged = True
                return _removals(part.removed)
            case "rows":
                self._staged = True
                return iter([b"".join(event("row", self._row(row)) for row in part.rows.rows)])
            case "arrow":
                self._staged = True
                return iter([await asyncio.to_thread(self._arrow_rows, part.arrow)])
            case "end":
                self._staged = False
                return iter([event("end", _end(part.end), part.end.token)])
            case "beat":
                return iter([event("beat", {"now": plain_instant(part.beat.now)})])
            case "refused":
                self.ended = True
                return iter([event("error", _refusal(part.refused).problem())])
        return iter(())

    def _begin(self, begin: pb.SyncBegin) -> list[bytes]:
        if begin.continued:
            return []
        staged, self._staged = self._staged, False
        if begin.mode == pb.SYNC_MODE_WHOLE:
            columns = [{"name": column.name, "type": column.type} for column in begin.columns]
            whole = {
                "reason": enum_name(begin, "reason"),
                "columns": columns,
                "keyed": begin.keyed,
                "slides": begin.slides,
            }
            return [event("whole", whole)]
        return [event("drop", {})] if staged else []

    def _row(self, row: pb.SyncRow) -> dict[str, Any]:
        values = [plain_value(value) for value in row.values]
        if self._bigint_text:
            values = [_safe(value) for value in values]
        return {
            "id": str(row.row_id),
            "key": str(row.key) if row.HasField("key") else None,
            "visible_from": plain_micros(
                row.visible_from if row.HasField("visible_from") else None
            ),
            "visible_until": plain_micros(
                row.visible_until if row.HasField("visible_until") else None
            ),
            "row": values,
        }

    def _arrow_rows(self, content: bytes) -> bytes:
        """Return the events of a part in Arrow, made in columns: the same as `_row` makes."""
        table = pa.ipc.open_stream(content).read_all()
        return b"".join(self._batch_rows(batch) for batch in table.to_batches())

    def _batch_rows(self, rows: pa.RecordBatch) -> bytes:
        own = {*_OWN_COLUMNS, KEY_FIELD.name}
        names = [name for name in rows.schema.names if name not in own]
        key = rows.schema.get_field_index(KEY_FIELD.name)
        texts = pc.binary_join_element_wise(
            'event: row\ndata: {"id": "',
            rows.column(_ROW_ID).cast(pa.string()),
            '", "key": ',
            "null" if key < 0 else _quoted(rows.column(key).cast(pa.string())),
            ', "visible_from": ',
            _quoted(instant_texts(rows.column(_FROM))),
            ', "visible_until": ',
            _quoted(instant_texts(rows.column(_UNTIL))),
            ', "row": ',
            row_texts(rows.select(names), bigint_text=self._bigint_text),
            "}\n\n",
            "",
        )
        return joined(texts, "")


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "").fill_null("null")


def _safe(value: Any) -> Any:
    is_unsafe = type(value) is int and abs(value) > _MAX_SAFE_INTEGER
    return str(value) if is_unsafe else value


def _end(end: pb.SyncEnd) -> dict[str, Any]:
    def instant(name: str) -> str | None:
        return plain_instant(getattr(end, name)) if end.HasField(name) else None

    return {
        "position": end.position.hex(),
        "now": instant("now"),
        "store_now": instant("store_now"),
        "rows": end.row_count,
        "good_until": instant("good_until"),
        "lease_until": instant("lease_until"),
        "notes": list(end.notes),
    }


def _refusal(refused: pb.SyncRefused) -> RefusedCall:
    status = status_pb2.Status(code=refused.code, message=refused.message)
    status.details.add().Pack(refused.detail)
    return RefusedCall(status)


# ---- rows that leave


def _removals(removed: pb.Removed) -> Iterator[bytes]:
    """Yield events with some ids each: a few bytes may name millions."""
    ids, ended = _ids(removed.runs), _ids(removed.ended)
    next_ended = next(ended, None)
    while chunk := list(islice(ids, _EVENT_IDS)):
        ended_ids = []
        while next_ended is not None and next_ended <= chunk[-1]:
            ended_ids.append(str(next_ended))
            next_ended = next(ended, None)
        yield event("gone", {"ids": [str(number) for number in chunk], "ended": ended_ids})


def _ids(runs: Sequence[int]) -> Iterator[int]:
    """Yield the ids that runs name: how many to skip, how many to take, again and again."""
    at = 0
    for skipped, taken in zip(runs[::2], runs[1::2], strict=True):
        at += skipped
        yield from range(at, at + taken)
        at += taken


# ---- the request


def watch_request(request: Request, handle: bytes) -> Message:
    """Return the Watch that a request asks for."""
    parameters = request.parameters
    item = pb.SyncItem(
        handle=handle, token=_since(request), window=parameters.text("window"), changes=True
    )
    sync = pb.SyncRequest(
        tenant=parameters.text("tenant"), items=[item], encoding=pb.ENCODING_ARROW
    )
    return pb.WatchRequest(sync=sync, beat=parameters.duration("beat"))


def _since(request: Request) -> bytes:
    """Return the token to go on from. A browser that connects again sends the newest one in the
    header, and the address as it was."""
    newest = request.headers.get("last-event-id", "")
    if not newest:
        return request.parameters.position("since")
    try:
        return bytes.fromhex(newest)
    except ValueError:
        # A token that can't be read, so that the answer comes whole.
        return newest.encode()
