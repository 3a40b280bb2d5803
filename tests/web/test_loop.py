"""What a request may take of the event loop, which all callers share: processor time, as in
tests/hostile."""

from __future__ import annotations

import gzip
import time

import pytest

from tests.hostile.metered import MOST_LOOP_SECONDS
from tests.support.web import SQL, WebServer

_ATTEMPTS = 3
_MOST = 16 << 20
JSON, NDJSON, CSV = "application/json", "application/x-ndjson", "text/csv"
_ROWS = "/v1/streams/things/rows"
_INPUTS = {
    "spaces": (_ROWS, JSON, b" " * _MOST),
    "empty lines": (_ROWS, NDJSON, b"\n" * _MOST),
    "lists": (_ROWS, JSON, b"[" * _MOST),
    "objects": (_ROWS, JSON, b"[" + b"{}," * (_MOST // 4) + b"{}]"),
    "keys": (_ROWS, JSON, b"{" + b'"a":1,' * (_MOST // 8) + b"}"),
    "commas": (_ROWS, CSV, b"id,name\n" + b"," * (_MOST - 10)),
    "names": (_ROWS, CSV, b"," * _MOST),
    "quotes": (_ROWS, CSV, b'id,name\n"' + b'""' * (_MOST // 3)),
    "sql": ("/v1/define", SQL, b"CREATE STREAM s (" * (1 << 15)),
}


async def _loop_seconds() -> float:
    return time.thread_time()


@pytest.mark.parametrize("name", _INPUTS)
def test_a_refused_body_takes_little_of_the_loop(web: WebServer, tenant: str, name: str) -> None:
    """They come packed: what the loop needs to receive bytes is the network's business."""
    path, content_type, body = _INPUTS[name]
    web.define("CREATE STREAM things (id BIGINT, name TEXT)", tenant=tenant)
    content, headers = gzip.compress(body, 1), {"content-encoding": "gzip"}
    seconds = []
    for _ in range(_ATTEMPTS):
        before = web.run(_loop_seconds())
        web.send("POST", path, content, content_type, headers, tenant=tenant)
        seconds.append(web.run(_loop_seconds()) - before)
        if seconds[-1] <= MOST_LOOP_SECONDS:
            return
    pytest.fail(f"the loop worked for {min(seconds):.3f} s")
