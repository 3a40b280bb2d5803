"""Eight Asks with a LIKE of 40 KB, or one with 2,500 of them, stopped the answers of all tenants
for minutes after their callers had gone, and SIGTERM did not end the server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pyarrow as pa
import pytest

from psoup.v1 import psoup_pb2 as pb
from tests.server.conftest import Start, start  # noqa: F401
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

_PATTERN = "%a" * 20_000
_TERMS = " OR ".join(f"t LIKE '%{n}%b%'" for n in range(2_500))


@pytest.mark.parametrize("condition", [f"t LIKE '{_PATTERN}b'", _TERMS])
def test_others_are_answered_and_sigterm_ends_the_server(start: Start, condition: str) -> None:  # noqa: F811
    server = start("--durability", "none")
    prepare(server.of("heavy"), pa.table({"t": ["a" * 45_000] * 200 + ["text"] * 60_000}))
    prepare(server.of("light"), pa.table({"t": ["text"]}))
    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda n: hopeless(server, f"{condition} OR t = '{n}'"), range(8)))
    assert set(codes) <= {grpc.StatusCode.DEADLINE_EXCEEDED, None}
    header, table = server.of("light").ask("SELECT count(*) AS n FROM s")
    assert table.to_pydict() == {"n": [1]} and header.row_count == 1
    stuck = server.stub.Ask(pb.AskRequest(tenant="heavy", sql=sql(condition)))
    assert server.stop() == 0
    stuck.cancel()


def prepare(server: ServerProcess, table: pa.Table) -> None:
    server.define("CREATE STREAM s (t TEXT)")
    server.publish("s", table)


def sql(condition: str) -> str:
    return f"SELECT count(*) AS n FROM s WHERE {condition}"


def hopeless(server: ServerProcess, condition: str) -> grpc.StatusCode | None:
    """An Ask that does not wait for its answer; its status, if it failed."""
    request: Any = pb.AskRequest(tenant="heavy", sql=sql(condition))
    try:
        list(server.stub.Ask(request, timeout=2))
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return None
