"""SyncSQL (2010), Example 5: R(S) refreshed every 2, through a running server and the oracle."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from datastem.instants import from_micros
from psoup.server.wire.values import from_instant
from querystem.language import CreateStream, bind_query, parse_statement
from tests.oracle.refresh import Event, History
from tests.support.server.process import ServerProcess

SECOND = 1_000_000


@dataclass(frozen=True)
class Example:
    """Rows (room, temp) at 1, 2, 3 and 4, and the refreshed answers at those instants."""

    create: str
    rows: tuple[tuple[str, int], ...]
    all: tuple[list[tuple[str, int]], ...]
    warm: tuple[list[tuple[str, int]], ...]


# Without a key nothing is replaced: the fourth row has a room of its own.
DISTINCT_ROOMS = Example(
    "CREATE STREAM s (room TEXT, temp BIGINT, at TIMESTAMP) ORDERED BY at",
    (("a", 99), ("b", 75), ("c", 80), ("d", 95)),
    ([], [("a", 99), ("b", 75)], [("a", 99), ("b", 75)],
     [("a", 99), ("b", 75), ("c", 80), ("d", 95)]),
    ([], [("a", 99)], [("a", 99)], [("a", 99), ("d", 95)]),
)  # fmt: skip
KEYED_ROOMS = Example(
    "CREATE STREAM s (room TEXT, temp BIGINT, at TIMESTAMP) KEY (room) ORDERED BY at",
    (("a", 99), ("b", 75), ("c", 80), ("a", 95)),
    ([], [("a", 99), ("b", 75)], [("a", 99), ("b", 75)], [("a", 95), ("b", 75), ("c", 80)]),
    ([], [("a", 99)], [("a", 99)], [("a", 95)]),
)
EXAMPLES = [DISTINCT_ROOMS, KEYED_ROOMS]


@pytest.mark.process
@pytest.mark.parametrize("example", EXAMPLES)
def test_syncsql_example_5_refresh_every_2(server: ServerProcess, example: Example) -> None:
    statement = parse_statement(example.create)
    assert isinstance(statement, CreateStream)
    schemas = {"s": statement.schema}
    server.define(example.create)
    texts = [
        "SELECT room, temp FROM s ORDER BY room REFRESH EVERY 2 SECONDS",
        "SELECT room, temp FROM s WHERE temp > 80 ORDER BY room REFRESH EVERY 2 SECONDS",
    ]
    handles = [server.register(text).handle for text in texts]
    events: list[Event] = []
    for place, (room, temp) in enumerate(example.rows):
        at = (place + 1) * SECOND
        server.publish("s", pa.table({"room": [room], "temp": [temp], "at": [from_micros(at)]}))
        row = {"room": room, "temp": temp, "at": from_micros(at), "ts": at, "row_id": place}
        events.append(Event("s", at, [row], at))
        for text, handle, answers in zip(texts, handles, (example.all, example.warm), strict=True):
            header, answer = server.invoke(handle)
            rows = [tuple(answer_row.values()) for answer_row in answer.to_pylist()]
            assert rows == answers[place]
            assert header.refreshed_at == from_instant(at // (2 * SECOND) * 2 * SECOND)
            naive = History(schemas, events, 0).ask(bind_query(text, schemas.get))
            assert naive.answer == answers[place]
