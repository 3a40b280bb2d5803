"""Who answers the papers' examples: the pure parts, and a running store."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa

from client_sdk import Client
from datastem.instants import from_micros
from querystem.evaluate import answer_at, answer_of, matching_rows
from querystem.language import bind_query
from tests.golden.stream import Moment, Stream, micros
from tests.oracle import naive_answer
from tests.oracle.comparing import Values
from tests.oracle.keyed import Keyed
from tests.oracle.strategies import to_batch
from tests.support.keyed import current_rows_in_window

_PATIENCE = 300.0

# A stream, a query and the instant it is asked about.
Ask = Callable[[Stream, str, Moment], list[Values]]


def ask_pure(stream: Stream, sql: str, at: Moment) -> list[Values]:
    """The kernel's answer over two parts, which must be the oracle's."""
    query = bind_query(sql, {stream.schema.name: stream.schema}.get)
    batch = to_batch(stream.schema, stream.rows)
    keyed = Keyed(stream.schema.key) if stream.schema.key else None
    if keyed is not None:
        batch = batch.append_column("_op", pa.array([row["_op"] for row in stream.rows]))
    half = batch.num_rows // 2
    parts = [batch.slice(0, half), batch.slice(half)]
    if keyed is None:
        table = answer_at(query, parts, micros(at))
    else:
        chosen = current_rows_in_window(query.leg.window, parts, micros(at), None, keyed)
        table = answer_of(query, matching_rows(query.leg.where, chosen))
    answer = [tuple(row.values()) for row in table.to_pylist()]
    assert answer == naive_answer(query, stream.rows, micros(at), keyed=keyed)
    return answer


class StoreEvaluator:
    """Each stream is a tenant's, published in two batches; each query is registered once.

    An answer is what the engine has matched, and must be what Ask says.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._connect = lru_cache(None)(self._define)
        self._register = lru_cache(None)(lambda stream, sql: self._connect(stream).register(sql))
        self._clients: list[Client] = []

    def ask(self, stream: Stream, sql: str, at: Moment) -> list[Values]:
        client, instant = self._connect(stream), from_micros(micros(at))
        answer = client.invoke(
            self._register(stream, sql),
            as_of=instant,
            knowledge="today",
            wait_for_engine=True,
            timeout=_PATIENCE,
        )
        assert (answer.now, answer.computed_rows) == (instant, 0)
        assert client.ask(sql, as_of=instant, knowledge="today").rows == answer.rows
        return [tuple(row.values()) for row in answer.rows]

    def _define(self, stream: Stream) -> Client:
        client = Client(self._target, tenant=f"golden-{secrets.token_hex(4)}")
        self._clients.append(client)
        client.define(stream.sql)
        names = [*stream.schema.arrow.names, *(["_op"] if stream.schema.key else [])]
        rows = [{name: row[name] for name in names} for row in stream.rows]
        half = len(rows) // 2
        for batch in (rows[:half], rows[half:]):
            client.publish(stream.schema.name, batch)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()
