"""Answers of registrations and of texts, in the form that a request asks for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from psoup.server.call import Call
from psoup.server.wire.arrow import Message as Piece
from psoup.v1 import psoup_pb2 as pb
from psoup.web.exchange import Headers, Request, Response
from psoup.web.forms import Form, form_of
from psoup.web.gateway import Gateway, Make
from psoup.web.plain_messages import plain_instant
from psoup.web.problems import RefusedCall

# Every answer is the caller's alone, and must be asked for again.
_CACHING: Headers = [
    ("cache-control", "private, no-cache"),
    ("vary", "Accept, Authorization, Cookie"),
]


async def answer(gateway: Gateway, request: Request, rpc: str, make: Make) -> Response:
    """Return the answer of Invoke or Ask. Raise RefusedCall.

    An answer of one piece has a length and an ETag over its rows; a longer one is streamed.
    """
    form, max_rows = form_of(request), request.parameters.count("limit")

    async def make_with_form(call: Call) -> Message:
        call.answer_form = form.of_rows(max_rows)
        return await make(call)

    messages = gateway.stream(request, rpc, make_with_form)
    try:
        header = pb.InvokeResponse.FromString(await anext(messages)).header
        head = _head(header, max_rows)
        headers = [("content-type", form.content_type), *_about(header), *_CACHING]
        first = [piece async for piece in _taken(messages, 2)]
        if len(first) < 2:
            return _whole(request, form, head, headers, b"".join(first))
    except BaseException:
        await messages.aclose()
        raise
    return Response(200, headers, pieces=_streamed(form, head, first, messages))


async def _taken(messages: AsyncGenerator[Piece, None], count: int) -> AsyncGenerator[bytes, None]:
    """Yield at most `count` of the next pieces."""
    for _ in range(count):
        try:
            piece = await anext(messages)
        except StopAsyncIteration:
            return
        assert isinstance(piece, bytes)
        yield piece


def _whole(request: Request, form: Form, head: str, headers: Headers, rows: bytes) -> Response:
    columns = head.partition('"columns"')[2]
    asked = f"{form} {request.path} {request.query_string!r} {columns}"
    digest = hashlib.blake2b(asked.encode(), digest_size=16)
    digest.update(rows)
    # Weak: position, NOW and the time that it took are not among what is compared.
    etag = f'W/"{digest.hexdigest()}"'
    headers = [*headers, ("etag", etag)]
    if _has_tag(request.headers.get("if-none-match", ""), etag):
        return Response(304, headers)
    frame = _frame(form, head)
    body = [frame.before, frame.first, rows, frame.after] if rows else [frame.before, frame.after]
    return Response(200, headers, b"".join(body))


def _has_tag(header: str, etag: str) -> bool:
    tags = [tag.strip() for tag in header.split(",")]
    return "*" in tags or etag.removeprefix("W/") in (tag.removeprefix("W/") for tag in tags)


@dataclass(frozen=True, slots=True)
class _Frame:
    """What stands before the rows, before their first piece, between pieces, and after them."""

    before: bytes = b""
    first: bytes = b""
    between: bytes = b""
    after: bytes = b""


def _frame(form: Form, head: str) -> _Frame:
    match form.name:
        case "json":
            return _Frame(head[:-1].encode() + b', "rows": [', b"\n", b",\n", b"\n]}\n")
        case "ndjson":
            return _Frame(head.encode(), b"\n", b"\n", b"\n")
    return _Frame()


async def _streamed(
    form: Form, head: str, first: list[bytes], messages: AsyncGenerator[Any, None]
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a long answer. One that fails on the way ends with an error's line, or
    raises RefusedCall, so that it never looks complete."""
    frame = _frame(form, head)
    async with aclosing(messages):
        yield frame.before + frame.first + frame.between.join(first)
        try:
            async for piece in messages:
                yield frame.between + piece
        except RefusedCall as refused:
            if form.name != "ndjson":
                raise
            yield b"\n" + json.dumps({"error": refused.problem()}, ensure_ascii=False).encode()
        yield frame.after


# ---- what comes before the rows


def _about(header: pb.AnswerHeader) -> Headers:
    headers = [("psoup-position", header.position.hex()), ("psoup-rows", str(header.row_count))]
    if header.HasField("now"):
        headers.append(("psoup-now", plain_instant(header.now)))
    return headers


def _head(header: pb.AnswerHeader, max_rows: int | None) -> str:
    """Return everything but the rows, as a JSON object; `columns` and later do not change while the
    answer does not."""

    def instant(name: str) -> str | None:
        return plain_instant(getattr(header, name)) if header.HasField(name) else None

    head = {
        "position": header.position.hex(),
        "now": instant("now"),
        "window": {"begin": instant("window_begin"), "end": instant("window_end")},
        "refreshed_at": instant("refreshed_at"),
        "complete_until": instant("complete_until"),
        "latest": instant("latest"),
        "full_at": instant("full_at"),
        "computed_rows": header.computed_rows,
        "joined_pairs": header.joined_pairs,
        "epoch": header.epoch,
        "behind_rows": header.behind_rows,
        "elapsed_ms": header.elapsed.ToMicroseconds() / 1000,
        "columns": [{"name": column.name, "type": column.type} for column in header.columns],
        "row_count": header.row_count,
        "truncated": max_rows is not None and max_rows < header.row_count,
        "notes": list(header.notes),
    }
    return json.dumps(head, ensure_ascii=False)
