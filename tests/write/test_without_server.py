"""A program writes to a store without a server: a tail of its own, proposals and the appender."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest

from datastem.accept import Limits, accept
from datastem.codec import encode
from datastem.instants import DAY, HOUR
from datastem.keyed_rows import KeyedRows
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT
from psoup.errors import SequenceGap, StreamExists
from psoup.store import Data, Entry, State, Store
from psoup.store.log.decoding import DecodedRows
from psoup.write.appender import Appender
from psoup.write.clock import ClockGuard
from psoup.write.draft import Chain, RecentBatches
from psoup.write.line import GroupLimits
from psoup.write.registrations import ManyRows, Prepared, RegisterAll, RegisterRows
from psoup.write.streams import Define, PublishBatch
from psoup.write.timepiece import of_clock, system_clock
from querystem.language import bind_rows

pytestmark = pytest.mark.usefixtures("counted_ids")

SCHEMA = StreamSchema("s", (Column("a", BIGINT),))


class OwnTail:
    """The state at the end of the log, and nothing else of a server."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.state = State()
        self.version = 0
        self.recent = RecentBatches()

    async def catch_up(self) -> None:
        log = self.store.log
        while log.folder.read_commit(self.version + 1) is not None:
            self.apply(self.version + 1, log.read(self.version + 1), {}, 0)

    def apply(self, version: int, entries: Sequence[Entry], rows: DecodedRows, nbytes: int) -> None:
        if version == self.version + 1:
            self.version = version
            for entry in entries:
                self.state.apply(entry)
                self.recent.insert(entry)

    async def keyed_rows(self, stream_id: int, low: int) -> KeyedRows:
        raise NotImplementedError("no edit of this program expects a row")

    def appending(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


@contextlib.asynccontextmanager
async def writer(path: Path) -> AsyncIterator[tuple[Appender, OwnTail]]:
    store = Store.open(path, create=True, sync=False)
    tail = OwnTail(store)
    guard = ClockGuard(of_clock(system_clock), HOUR, DAY)
    appender = Appender(store.log, tail, guard, GroupLimits(100, 1 << 20))
    running = asyncio.create_task(appender.run())
    try:
        yield appender, tail
        await appender.drain()
    finally:
        running.cancel()


def batch(values: list[int], sequence: int, chain: Chain | None = None) -> PublishBatch:
    accepted = accept(pa.table({"a": values}), SCHEMA, 0, Limits())
    return PublishBatch(
        tenant="main",
        owner="main",
        stream_id=1,
        publisher="p",
        sequence=sequence,
        rows=accepted.batch.num_rows,
        min_ts=accepted.min_ts,
        max_ts=accepted.max_ts,
        digest=accepted.digest,
        request_digest=accepted.request_digest,
        payload=encode(accepted.batch),
        chain=chain,
    )


async def test_two_writers_share_a_log(tmp_path: Path) -> None:
    async with (
        writer(tmp_path / "s") as (first_writer, _),
        writer(tmp_path / "s") as (second_writer, tail),
    ):
        await first_writer.submit(Define("main", "main", SCHEMA))
        first = await first_writer.submit(batch([1, 2], 1))
        second = await second_writer.submit(batch([3], 2))
        again = await second_writer.submit(batch([1, 2], 1))
    assert (first.first_row_id, second.first_row_id) == (0, 2)
    assert again.duplicate and again.position == first.position
    assert tail.state.streams[1].high == 3


async def test_proposals_that_wait_together_are_one_commit(tmp_path: Path) -> None:
    async with writer(tmp_path / "s") as (appender, tail):
        await appender.submit(Define("main", "main", SCHEMA))
        waiting = [appender.enqueue(batch([number], number)) for number in (1, 2, 3)]
        published = await asyncio.gather(*waiting)
    assert [outcome.position.version for outcome in published] == [2, 2, 2]
    entries = tail.store.log.read(2)
    assert [entry.event.sequence for entry in entries if isinstance(entry.event, Data)] == [1, 2, 3]


async def test_what_is_refused_leaves_nothing(tmp_path: Path) -> None:
    async with writer(tmp_path / "s") as (appender, tail):
        await appender.submit(Define("main", "main", SCHEMA))
        with pytest.raises(StreamExists):
            await appender.submit(Define("main", "main", SCHEMA))
        with pytest.raises(SequenceGap, match="send sequence 1|can't follow 0"):
            await appender.submit(batch([1], 2))
        assert tail.version == tail.store.log.latest_version() == 1


async def test_registrations_of_a_table_of_values(tmp_path: Path) -> None:
    bound = bind_rows("SELECT a FROM s WHERE a = :x", lambda name: SCHEMA, {"x": [1, 2, 1]}, 3)
    assert bound.form is not None
    rows = ManyRows(["k1", "k2", "k3"], ['{"x":1}', '{"x":2}', '{"x":1}'], bound.keys)
    async with writer(tmp_path / "s") as (appender, tail):
        await appender.submit(Define("main", "main", SCHEMA))
        proposal = RegisterRows("main", "main", 1, "a text", HOUR, bound.form, rows)
        registered = await appender.submit(proposal)
        assert (registered.created, len(tail.state.registrations)) == (3, 3)
        assert len(tail.state.predicates) == 2
        again = await appender.submit(proposal)
        assert (again.created, again.handles) == (0, registered.handles)


async def test_values_fall_into_the_predicate_of_any_leg(tmp_path: Path) -> None:
    schemas = {name: StreamSchema(name, SCHEMA.columns) for name in ("s", "t")}
    text = "SELECT s.a FROM s JOIN t ON s.a = t.a WHERE s.a > :x AND t.a > :y"
    bound = bind_rows(text, schemas.get, {"x": [1, 2, 1], "y": [5, 5, 6]}, 3)
    ready = [Prepared("", "{}", query) for query in bound.queries]
    async with writer(tmp_path / "s") as (appender, tail):
        for schema in schemas.values():
            await appender.submit(Define("main", "main", schema))
        proposal = RegisterAll("main", "main", {"s": 1, "t": 2}, text, HOUR, ready)
        registered = await appender.submit(proposal)
        assert registered.created == 3
        registrations = [tail.state.registrations[handle] for handle in registered.handles]
    assert [[leg.stream_id for leg in value.legs] for value in registrations] == [[1, 2]] * 3
    assert [value.predicates for value in registrations] == [(1, 2), (3, 2), (1, 4)]
    counts = {value.id: value.registrations for value in tail.state.predicates.values()}
    assert counts == {1: 2, 2: 2, 3: 1, 4: 1}
