"""Rows the engine has not stored: beyond the budget they leave memory, and answers stay right."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from datastem.instants import DAY, SECOND
from psoup.answers.replicas.replica import Backlog
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from tests.server.conftest import Start
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ServerProcess

BEGIN = 20_000 * DAY
STREAMS = (
    "CREATE STREAM s (k BIGINT, v BIGINT, at TIMESTAMP) ORDERED BY at",
    "CREATE STREAM newest (k BIGINT, v BIGINT, at TIMESTAMP) KEY (k) ORDERED BY at",
)
QUERIES = {
    "counted": "SELECT count(*) AS n, sum(v) AS total FROM s",
    "found": "SELECT row_id, v FROM s WHERE v % 1000 = 7",
    "recent": "SELECT count(*) AS n FROM s RANGE 100 SECONDS",
    "last": "SELECT k, v FROM s ROWS 1 PARTITION BY k",
    "current": "SELECT k, v FROM newest WHERE k % 2 = 0",
}


# Of the columns every row has.
_SYSTEM_BYTES = 41


@dataclass
class Published:
    """Everything sent so far, one row a millisecond with every tenth late, and what is asked."""

    k: list[np.ndarray] = field(default_factory=list)
    v: list[np.ndarray] = field(default_factory=list)
    at: list[np.ndarray] = field(default_factory=list)

    def batch(self, count: int) -> pa.Table:
        random = np.random.default_rng(len(self.k))
        first = sum(map(len, self.k))
        late = random.integers(0, 20 * SECOND, count) * (np.arange(count) % 10 == 5)
        self.k.append(random.integers(0, 500, count))
        self.v.append(random.integers(0, 10**6, count))
        self.at.append(BEGIN + np.arange(first, first + count) * 1000 - late)
        at = pa.array(self.at[-1]).view("timestamp[us]")
        return pa.table({"k": self.k[-1], "v": self.v[-1], "at": at})

    def expected(self) -> dict[str, list[tuple[int, ...]]]:
        k, v, at = (np.concatenate(column) for column in (self.k, self.v, self.at))
        by_time = np.lexsort((np.arange(len(at)), at))
        # Of the rows of a key the last one stays.
        newest = dict(zip(k[by_time].tolist(), v[by_time].tolist(), strict=True))
        matches = np.flatnonzero(v % 1000 == 7)
        return {
            "counted": [(len(v), int(v.sum()))],
            "found": sorted((int(row), int(v[row])) for row in matches),
            "recent": [(int((at > at.max() - 100 * SECOND).sum()),)],
            "last": sorted(newest.items()),
            "current": sorted((key, value) for key, value in newest.items() if key % 2 == 0),
        }


def answers(server: ServerProcess) -> dict[str, list[tuple[int, ...]]]:
    rows = {}
    for name, sql in QUERIES.items():
        _, table = server.ask(sql)
        rows[name] = sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
        assert held(server) <= limit(server), name
    return rows


def held(server: ServerProcess) -> int:
    return int(server.stub.Status(pb.StatusRequest()).cache_bytes)


def limit(server: ServerProcess) -> int:
    return int(server.stub.Status(pb.StatusRequest()).cache_limit_bytes)


@pytest.mark.process
def test_a_tail_many_times_the_budget(start: Start, tmp_path: Path) -> None:
    options = ("--memory", "48MB", "--durability", "none")
    server, sent, all_bytes = start(*options), Published(), 0
    for sql in STREAMS:
        server.define(sql)
    sizes = [100_000, 1, 30_000, 7] * 6
    for size in sizes:
        batch = sent.batch(size)
        all_bytes += 2 * (batch.nbytes + size * _SYSTEM_BYTES)
        for stream in ("s", "newest"):
            server.publish(stream, batch)
        assert held(server) <= limit(server)
    assert all_bytes > limit(server), "or nothing has to leave"
    expected = sent.expected()
    assert answers(server) == expected
    assert answers(server) == expected, "with what was remembered"
    server.publish("s", sent.batch(1000))
    server.publish("newest", pa.table({"k": sent.k[-1], "v": sent.v[-1], "at": _instants(sent)}))
    assert answers(server) == sent.expected()
    server.stop()

    server = start(*options)
    assert answers(server) == sent.expected(), "opened anew"

    engine = HandMadeEngine(Store.open(tmp_path / "store"))
    latest = Store.open(tmp_path / "store").log.latest_version()
    for upto in (latest // 3, latest // 2, latest):
        number = engine.step(upto).number
        while server.stub.Status(pb.StatusRequest()).epoch < number:
            time.sleep(0.02)
        assert answers(server) == sent.expected(), "some in files, the rest in the log"
    engine.trim()
    assert answers(server) == sent.expected(), "all in files"


def _instants(sent: Published) -> pa.Array:
    return pa.array(sent.at[-1]).view("timestamp[us]")


def test_a_backlog_of_many_commits_has_few_marks() -> None:
    backlog, many = Backlog(), 100_000
    for version in range(many):
        backlog.append(version, 10 * version, 3)
    assert (backlog.nbytes, backlog.oldest) == (3 * many, 0)
    assert len(backlog._marks) <= 4097
    backlog.consume(many // 2)
    assert 3 * many // 2 <= backlog.nbytes <= 3 * many * 51 // 100
    backlog.append(many, 10 * many, 5)
    backlog.consume(many - 1)
    backlog.consume(many)
    assert (backlog.nbytes, backlog.oldest) == (0, None)


def test_a_backlog_tells_of_each_stream_since_when() -> None:
    backlog = Backlog()
    for version, streams in enumerate(({1: 3}, {1: 3, 2: 5}, {}, {2: 5}, {3: 1})):
        backlog.append(version, 10 * version, 9, streams)
    assert [backlog.oldest_of(stream_id) for stream_id in (1, 2, 3, 4)] == [0, 10, 40, None]
    backlog.consume(0)
    assert [backlog.oldest_of(stream_id) for stream_id in (1, 2, 3)] == [10, 10, 40]
    backlog.consume(1)
    assert [backlog.oldest_of(stream_id) for stream_id in (1, 2, 3)] == [None, 30, 40]
    backlog.append(5, 50, 9, {1: 3, 2: 5})
    backlog.consume(4)
    assert [backlog.oldest_of(stream_id) for stream_id in (1, 2, 3)] == [50, 50, None]


def test_a_stream_s_rows_in_a_long_backlog_are_as_old_as_they_are() -> None:
    backlog, many = Backlog(), 20_000
    for version in range(many):
        backlog.append(version, 10 * version, 3, {2 if version == many // 2 + 1 else 1: 3})
    assert len(backlog._marks) <= 4097
    assert backlog.oldest_of(2) == 10 * (many // 2 + 1), "not as those beside them"
    backlog.consume(many // 2 - 1000)
    assert backlog.oldest_of(2) == 10 * (many // 2 + 1)
    backlog.consume(many)
    assert backlog.oldest_of(1) is None and backlog.oldest_of(2) is None
