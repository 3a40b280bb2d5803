"""REFRESH over several streams, through a server, with an engine or without one: the log itself is
what the oracle walks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from psoup.server.wire.values import from_instant, to_instant
from psoup.v1 import psoup_pb2 as pb
from tests.oracle.refreshed_trees import RefreshedTree, TreeHistory
from tests.server.conftest import Start
from tests.server.test_refresh import SCHEMAS, SECOND, World, bound
from tests.support.lengths import scaled

QUERIES = [
    "SELECT r.row_id, a.row_id AS other FROM readings AS r, alarms AS a WHERE r.value = a.value"
    " REFRESH EVERY 4 SECONDS",
    "SELECT r.room, count(*) AS n FROM readings AS r, brief AS b WHERE r.room = b.room"
    " GROUP BY r.room RANGE 5 SECONDS REFRESH EVERY 3 SECONDS",
    "SELECT room, value FROM readings UNION ALL SELECT room, value FROM brief"
    " REFRESH EVERY 2 SECONDS",
    "SELECT r.value, d.value AS other FROM readings AS r WINDOW(ROWS 3), doors AS d"
    " WHERE r.value = d.value REFRESH EVERY 3 SECONDS",
    "SELECT r.row_id FROM readings AS r, brief AS b WHERE r.value < b.value REFRESH ON alarms"
    " WHERE value > 6",
    "SELECT count(*) AS n FROM readings AS r, readings AS s WHERE r.value = s.value RANGE 6 SECONDS"
    " REFRESH ON readings WHERE value > 7",
    "SELECT r.row_id, a.row_id AS other"
    " FROM readings AS r WINDOW(UNBOUNDED REFRESH EVERY 2 SECONDS),"
    " alarms AS a WINDOW(RANGE 9 SECONDS REFRESH EVERY 3 SECONDS) WHERE r.value = a.value",
    "SELECT room, row_id FROM readings WINDOW(ROWS 4 REFRESH EVERY 3 SECONDS) UNION ALL"
    " SELECT room, row_id FROM brief WINDOW(RANGE 9 SECONDS) REFRESH EVERY 4 SECONDS",
]
NESTED = [
    "SELECT m.room, m.n, b.row_id FROM (SELECT room, count(*) AS n FROM readings GROUP BY room"
    " RANGE 6 SECONDS REFRESH EVERY 4 SECONDS) AS m, brief AS b WINDOW(RANGE 9 SECONDS)"
    " WHERE m.room = b.room ORDER BY b.row_id, m.room",
    "SELECT room, count(*) AS n FROM (SELECT room FROM readings REFRESH ON alarms WHERE value > 5)"
    " AS seen GROUP BY room REFRESH EVERY 3 SECONDS OFFSET 1 SECOND",
    "SELECT r.row_id, a.row_id AS other"
    " FROM readings AS r WINDOW(ROWS 4 REFRESH ON alarms WHERE value > 6),"
    " alarms AS a WINDOW(RANGE 9 SECONDS) WHERE r.value = a.value",
    "SELECT r.row_id FROM readings AS r, brief AS b WINDOW(RANGE 9 SECONDS) WHERE r.value = b.value"
    " REFRESH EVERY 5 SECONDS OFFSET 2 SECONDS OR ON alarms WHERE value > 7 OR ON brief",
    "(SELECT room, row_id FROM readings RANGE 8 SECONDS REFRESH ON readings WHERE value > 7)"
    " UNION ALL SELECT room, row_id FROM brief WINDOW(RANGE 9 SECONDS) REFRESH EVERY 4 SECONDS",
    "SELECT row_id FROM readings"
    " WHERE value > (SELECT max(value) FROM brief RANGE 9 SECONDS REFRESH EVERY 5 SECONDS)",
    "SELECT s.row, a.row_id FROM (SELECT row_id AS row, value FROM doors REFRESH ON alarms"
    " WHERE value > 6) AS s, alarms AS a WINDOW(RANGE 9 SECONDS) WHERE s.value = a.value",
]


def _check(answer: tuple[pb.AnswerHeader, pa.Table], expected: RefreshedTree, case: object) -> None:
    header, table = answer
    assert [tuple(row.values()) for row in table.to_pylist()] == expected.answer, case
    instants = [
        to_instant(getattr(header, name)) if header.HasField(name) else None
        for name in ("refreshed_at", "now", "full_at")
    ]
    assert instants == [expected.instant, expected.now, expected.full], case


@pytest.mark.process
@pytest.mark.parametrize(("seed", "engine"), [(1, False), (2, True)])
@pytest.mark.parametrize("queries", [QUERIES, NESTED], ids=["whole", "nested"])
def test_oracle_refreshed_trees(
    start: Start, tmp_path: Path, queries: Sequence[str], seed: int, engine: bool
) -> None:
    world = World(start, tmp_path / "store", seed, engine)
    handles = {sql: world.server.register(sql).handle for sql in queries}
    for step in range(scaled(30)):
        world.act()
        if step % 5 != 4:
            continue
        events = world.log.events()
        present = TreeHistory(SCHEMAS, events, 1 << 60)
        then = world.made.choice([event.stamp for event in events])
        instant = world.made.randrange(60 * SECOND)
        for sql in world.made.sample(queries, 4):
            query = bound(sql)
            _check(world.server.invoke(handles[sql]), present.ask(query), (step, sql))
            past = TreeHistory(SCHEMAS, events, 1 << 60, then)
            fields = {"as_of": from_instant(then)}
            _check(world.server.ask(sql, **fields), past.ask(query), (step, sql, then))
            if "doors" not in sql:
                today = TreeHistory(SCHEMAS, events, 1 << 60, instant, today=True)
                moment = {"as_of": from_instant(instant), "knowledge": pb.KNOWLEDGE_TODAY}
                _check(world.server.ask(sql, **moment), today.ask(query), (step, sql, instant))
            fresh, _ = world.server.invoke(handles[sql], unrefreshed=True)
            assert not fresh.HasField("refreshed_at") and not fresh.HasField("full_at")
