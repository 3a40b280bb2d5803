"""REFRESH goes by whole batches: the store answers what docs/reference/language.md shows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from datastem.instants import SECOND, from_micros
from psoup.server.wire.values import from_instant
from tests.support.docs.markdown import read
from tests.support.docs.refreshes import batches_of, refreshes
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process


REFRESHES = refreshes(read("docs/reference/language.md"))


@pytest.mark.parametrize(("sql", "rows", "answer", "point"), REFRESHES)
def test_as_the_page_shows(
    server: ServerProcess, sql: str, rows: str, answer: str, point: str
) -> None:
    server.define("CREATE STREAM alarms (kind TEXT, level BIGINT, at TIMESTAMP) ORDERED BY at")
    handle = server.register(sql).handle
    for batch in batches_of(rows):
        columns = {
            "kind": [""] * len(batch),
            "level": [level for _, level in batch],
            "at": [from_micros(second * SECOND) for second, _ in batch],
        }
        server.publish("alarms", pa.table(columns))
    expected = [from_micros(int(seconds) * SECOND) for seconds in answer.split(",") if seconds]
    for header, table in (server.invoke(handle), server.ask(sql)):
        assert table["at"].to_pylist() == expected
        assert header.refreshed_at == from_instant(int(point) * SECOND)
