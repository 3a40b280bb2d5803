"""The loop of every source, over the store in memory: marks, cuts, bad rows, other copies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk import AsyncClient, Client, ConnectionFailed, ErrorDetail, MockTransport, RowProblem
from psoup.source.errors import AnotherCopy, BadRowFound, BadSettings
from psoup.source.feeding import batches as batches_module
from psoup.source.feeding import fence as fence_module
from psoup.source.feeding import publishing as publishing_module
from psoup.source.feeding.bad_rows import BadRows
from psoup.source.feeding.feed import Feed
from psoup.source.feeding.fence import CopyFence
from psoup.source.feeding.piece import BadRow, Mark, Piece
from psoup.source.feeding.report import Report
from tests.support.client_sdk.fake_store import FakeStore

ASIDE = (
    "CREATE STREAM rejected (source TEXT, place TEXT, reason TEXT, message TEXT, raw TEXT, "
    "metadata TEXT)"
)
SCHEMA = pa.schema([("k", pa.int64())])


class ListReader:
    """A reader of numbers in pieces; negative ones are bad. A piece with a mark ends where `ends`
    says.
    """

    can_seek = True
    at_end = False

    def __init__(self, values: list[int], piece_sizes: list[int], at: Mark, fail_after: int = -1):
        self._values, self._at = values, int(at.get("at", 0))
        self._sizes: Iterator[int] = iter(piece_sizes)
        self._polls, self._fail_after = 0, fail_after
        self.acknowledged: list[Mark] = []

    def poll(self, seconds: float) -> Piece | None:
        self._polls += 1
        if self._polls - 1 == self._fail_after:
            raise RuntimeError("killed")
        size = next(self._sizes, 3)
        values = self._values[self._at : self._at + max(1, abs(size))]
        if not values:
            return Piece(SCHEMA.empty_table(), is_last=True)
        bad = tuple(
            BadRow(n, f"at {self._at + n}", "BAD", "is negative", str(value))
            for n, value in enumerate(values)
            if value < 0
        )
        self._at += len(values)
        good = pa.table({"k": [value for value in values if value >= 0]}, schema=SCHEMA)
        # A piece of negative size has no mark: only counting leads into it.
        return Piece(good, bad, {"at": self._at} if size > 0 else None)

    def acknowledge(self, mark: Mark) -> None:
        self.acknowledged.append(mark)

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass


class CountedReader(ListReader):
    """A reader whose marks are only seen at the beginning: everything is counted."""

    def poll(self, seconds: float) -> Piece | None:
        piece = super().poll(seconds)
        assert piece is not None
        return Piece(piece.table, piece.bad, None, is_last=piece.is_last)


@pytest.fixture
def transport() -> MockTransport:
    transport = FakeStore().transport()
    client = Client(transport=transport)
    client.define("CREATE STREAM s (k BIGINT)")
    client.define(ASIDE)
    return transport


def rows(transport: MockTransport, stream: str = "s") -> list[dict[str, Any]]:
    return list(Client(transport=transport).ask(f"SELECT * FROM {stream}"))


def numbers(transport: MockTransport) -> list[int]:
    return [row["k"] for row in rows(transport)]


def run(
    transport: MockTransport, reader: Any, policy: BadRows | None = None, **options: Any
) -> Report:
    report = Report("p")

    async def feed() -> None:
        async with AsyncClient(transport=transport) as client:
            stream = await client.stream("s")
            options.setdefault("patience_seconds", 0.0)
            opened = reader if callable(reader) else lambda mark: reader
            await Feed(
                client, stream, "p", opened, policy or BadRows(), report=report, **options
            ).run()

    asyncio.run(feed())
    return report


class RestartingReader(ListReader):
    """A reader that begins again wherever it is opened, as a snapshot does."""

    _has_begun = False

    def poll(self, seconds: float) -> Piece | None:
        if not self._has_begun:
            self._has_begun = True
            return Piece(SCHEMA.empty_table(), mark={"at": 0}, is_restart=True)
        piece = super().poll(seconds)
        assert piece is not None
        return replace(piece, mark={"at": 0}, mark_before=lambda record: {"at": 0})


@pytest.mark.parametrize("counted", [{"aside_done": 3}, {"row": 2}, {"row": 2, "aside_done": 1}])
def test_a_reader_that_begins_again_counts_nothing_of_before(
    transport: MockTransport, counted: Mark
) -> None:
    """Else a bad row among other rows than those of before would be lost."""
    empty = SCHEMA.empty_table()
    mark = json.dumps({"at": 0, **counted}).encode()
    Client(transport=transport).publisher("p").publish("s", empty, mark=mark)
    reader = RestartingReader([1, -2, 3], [3], {})
    run(transport, reader, BadRows("aside", "rejected"))
    assert numbers(transport) == [1, 3]
    assert [row["raw"] for row in rows(transport, "rejected")] == ["-2"]
    # What the store counts now is of this try.
    assert reader.acknowledged[0] == {"at": 0}


VALUES = st.lists(st.integers(-3, 20), max_size=30)
SIZES = st.lists(st.integers(-4, 4), max_size=20)


@given(VALUES, SIZES, st.lists(st.integers(0, 6), max_size=5), st.integers(1, 7))
def test_every_record_once_however_it_is_cut_and_killed(
    values: list[int], sizes: list[int], kills: list[int], batch_rows: int
) -> None:
    """Good rows once and in order, bad ones aside once, although the reader dies at any poll."""
    transport = FakeStore().transport()
    client = Client(transport=transport)
    client.define("CREATE STREAM s (k BIGINT)")
    client.define(ASIDE)
    policy = BadRows("aside", "rejected")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches_module, "BATCH_ROWS", batch_rows)
        for kill in [*kills, -1]:
            try:
                run(transport, lambda at, k=kill: ListReader(values, sizes, at, k), policy)
            except RuntimeError:
                continue
    assert numbers(transport) == [value for value in values if value >= 0]
    aside = [int(row["raw"]) for row in rows(transport, "rejected")]
    assert aside == [value for value in values if value < 0]


@given(VALUES, st.integers(0, 40), st.integers(1, 5))
def test_a_cut_connection_after_any_request(values: list[int], cut: int, batch_rows: int) -> None:
    """The store takes a request and the answer is lost, or it is never reached."""
    transport = FakeStore().transport()
    Client(transport=transport).define("CREATE STREAM s (k BIGINT)")
    real, count = transport._handlers["Publish"], 0

    def flaky(request: Any) -> Any:
        nonlocal count
        count += 1
        reply = real(request) if count != cut else None
        if count in (cut, cut + 2):
            raise ConnectionFailed("cut")
        return reply

    transport._handlers["Publish"] = flaky
    good = [abs(value) for value in values]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches_module, "BATCH_ROWS", batch_rows)
        patch.setattr("client_sdk._grpc.effects.Retry.pause", lambda self, attempts: 0.0)
        run(transport, lambda at: CountedReader(good, [3], at))
    assert numbers(transport) == good


def test_a_slow_way_back_to_the_mark_never_moves_the_mark_back(
    transport: MockTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that are counted are read again before the mark, which takes as long as it takes."""
    values = list(range(20))
    with pytest.raises(RuntimeError):
        run(transport, lambda at: CountedReader(values, [1] * 20, at, fail_after=15))
    assert numbers(transport) == values[:15]
    monkeypatch.setattr(batches_module, "BATCH_SECONDS", 0.0)
    for fail_after in (3, 14, 16, -1):
        try:
            run(transport, lambda at, n=fail_after: CountedReader(values, [1] * 20, at, n))
        except RuntimeError:
            continue
    assert numbers(transport) == values


@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_bad_row_stops_before_it(transport: MockTransport, place: int) -> None:
    values = [*range(place), -1, *range(place, 6)]
    for _ in range(2):
        with pytest.raises(BadRowFound, match=f"at {place}.*is negative"):
            run(transport, lambda at: ListReader(values, [], at))
        assert numbers(transport) == list(range(place))


def test_a_row_that_the_store_refuses_is_a_bad_row(transport: MockTransport) -> None:
    real = transport._handlers["Publish"]

    def refuse(request: Any) -> Any:
        if request.stream == "s":
            values = pa.ipc.open_stream(request.arrow).read_all().column("k").to_pylist()
            if 4 in values:
                detail = ErrorDetail("TOO_FAR_AHEAD", row=values.index(4))
                raise RowProblem("the ts is too far ahead", detail=detail)
        return real(request)

    transport._handlers["Publish"] = refuse
    policy = BadRows("aside", "rejected")
    run(transport, lambda at: ListReader([1, -2, 3, 4, 5, 6], [6], at), policy)
    assert numbers(transport) == [1, 3, 5, 6]
    reasons = [(row["reason"], row["raw"]) for row in rows(transport, "rejected")]
    assert sorted(reasons) == [("BAD", "-2"), ("TOO_FAR_AHEAD", '{"k": "4"}')]
    metadata = {row["metadata"] for row in rows(transport, "rejected")}
    assert metadata == {None, '{"row": {"k": "4"}}'}


def test_bad_rows_that_do_not_fit_a_message_go_aside_in_parts(
    transport: MockTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing_module, "ASIDE_CHARACTERS", 5)
    values = [1, -12, -13, 2, -14, -15, -16, 3]
    run(transport, lambda at: ListReader(values, [8], at), BadRows("aside", "rejected"))
    assert numbers(transport) == [1, 2, 3]
    asides = [int(row["raw"]) for row in rows(transport, "rejected")]
    assert asides == [-12, -13, -14, -15, -16]
    requests = [*transport.requests("PublishStream"), *transport.requests("Publish")]
    assert sum(request.stream == "rejected" for request in requests) == 5


def test_too_many_bad_rows_stop_the_source(transport: MockTransport) -> None:
    with pytest.raises(BadRowFound, match="bad_rows_most"):
        policy = BadRows("aside", "rejected", most=5)
        run(transport, lambda at: ListReader([-1] * 50, [10], at), policy)
    with pytest.raises(BadSettings, match="needs aside"):
        BadRows("aside")


def test_two_copies_never_publish_a_row_twice(
    transport: MockTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two feeds of one publisher run side by side; the one that loses too often stops."""
    monkeypatch.setattr(fence_module, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(batches_module, "BATCH_ROWS", 7)
    values = list(range(500))
    stopped = []

    async def both() -> None:
        async with AsyncClient(transport=transport) as client:
            stream = await client.stream("s")

            async def one_feed(size: int) -> None:
                feed = Feed(
                    client,
                    stream,
                    "p",
                    lambda at: ListReader(values, [size] * 500, at),
                    report=Report("p"),
                )
                try:
                    await feed.run()
                except AnotherCopy as error:
                    stopped.append(str(error))

            await asyncio.gather(one_feed(5), one_feed(3))

    asyncio.run(both())
    assert numbers(transport) == values
    assert len(stopped) <= 1


async def test_the_third_lost_race_in_a_minute_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence_module, "WAIT_SECONDS", 0.0)

    async def sequence() -> int:
        return 1

    fence = CopyFence()
    await fence.lost(sequence)
    await fence.lost(sequence)
    with pytest.raises(AnotherCopy):
        await fence.lost(sequence)
    standby = CopyFence(standby=True)
    for _ in range(5):
        await standby.lost(sequence)


def test_marks_are_json_objects_and_come_from_the_store(transport: MockTransport) -> None:
    report = run(transport, lambda at: ListReader([1, 2, 3], [2], at))
    assert report.rows == 3 and report.mark == {"at": 3}
    marks = [json.loads(request.mark) for request in transport.requests("PublishStream")]
    assert marks[-1] == {"at": 3}
    run(transport, lambda at: ListReader([1, 2, 3, 4], [2], at))
    assert numbers(transport) == [1, 2, 3, 4]
