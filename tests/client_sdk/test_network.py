"""The contract suite, and what only a network can do, over real gRPC."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from client_sdk import (
    AsyncClient,
    Client,
    ConnectionFailed,
    ErrorDetail,
    LimitExceeded,
    NotFound,
    QueryProblem,
    Retry,
)
from client_sdk._session import targets_of, with_port
from psoup.v1 import psoup_pb2 as pb
from tests.support.client_sdk.contract import ClientContract, trade, trades
from tests.support.client_sdk.fake_store import FakeStore
from tests.support.client_sdk.loopback import serving

QUICK = Retry(attempts=2, first=0.01)


class TestLoopback(ClientContract):
    @pytest.fixture
    def client(self) -> Iterator[Client]:
        with serving(FakeStore()) as target, Client(target) as client:
            yield client


def test_no_server_is_a_failed_connection() -> None:
    with serving(FakeStore()) as target:
        pass
    with Client(target, retry=QUICK) as client, pytest.raises(ConnectionFailed, match=target):
        client.streams()


async def test_no_server_is_a_failed_connection_for_async_too() -> None:
    with serving(FakeStore()) as target:
        pass
    async with AsyncClient(target, retry=QUICK) as client:
        with pytest.raises(ConnectionFailed, match=target):
            await client.streams()


def test_a_host_alone_means_the_port_of_a_store() -> None:
    expected = {
        "localhost": "localhost:7181",
        "10.0.0.7": "10.0.0.7:7181",
        "store.example:80": "store.example:80",
        "::1": "[::1]:7181",
        "[::1]": "[::1]:7181",
        "[::1]:9": "[::1]:9",
        "unix:/run/psoup": "unix:/run/psoup",
        "dns:///store.example:80": "dns:///store.example:80",
    }
    assert {target: with_port(target) for target in expected} == expected


def test_several_servers_stand_in_a_list_or_have_commas_between() -> None:
    assert targets_of("localhost") == ("localhost:7181",)
    assert targets_of("a, b:80,a") == targets_of(["a", "b:80"]) == ("a:7181", "b:80")
    assert targets_of("ipv4:10.0.0.1:80,10.0.0.2:80") == ("ipv4:10.0.0.1:80,10.0.0.2:80",)
    texts: list[str | list[str]] = ["", "a,", []]
    for text in texts:
        with pytest.raises(ValueError, match="host or host:port"):
            targets_of(text)


def test_calls_go_to_a_server_of_the_list_that_is_there() -> None:
    """A statement, too, which is never sent twice: the first server never saw it."""
    with serving(FakeStore()) as absent:
        pass
    store = FakeStore()
    with serving(store) as first, Client([absent, first]) as client:
        assert client.define("CREATE STREAM s (a BIGINT)").stream.name == "s"
    with serving(store) as second, Client(f"{absent},{second}") as client:
        assert [stream.name for stream in client.streams()] == ["s"]


async def test_an_async_client_goes_to_a_server_that_is_there() -> None:
    store = FakeStore()
    with serving(store) as second:
        with serving(store) as first:
            client = AsyncClient([first, second])
            await client.define("CREATE STREAM s (a BIGINT)")
        assert [stream.name for stream in await client.streams()] == ["s"]
        await client.close()


def test_if_no_server_of_the_list_is_there_the_error_names_one() -> None:
    with serving(FakeStore()) as first, serving(FakeStore()) as second:
        pass
    with Client([first, second], retry=QUICK) as client, pytest.raises(ConnectionFailed) as caught:
        client.streams()
    assert first in caught.value.message or second in caught.value.message


def test_a_store_that_comes_back_is_found_at_once() -> None:
    """By a client that has been trying all the while, and by a new one in its process.

    gRPC's own pauses would have grown by then to more than the retries of one call.
    """
    with serving(FakeStore()) as target:
        pass
    with Client(target, retry=Retry(attempts=1)) as client, Client(target) as patient:
        patient._transport = client._transport
        until = time.monotonic() + 6
        while time.monotonic() < until:
            with pytest.raises(ConnectionFailed):
                client.streams()
            time.sleep(0.05)
        with serving(FakeStore(), port=int(target.rpartition(":")[2])), Client(target) as fresh:
            assert fresh.streams() == patient.streams() == []


def test_a_client_that_is_closed_ends_its_calls() -> None:
    started = threading.Event()

    class Slow(FakeStore):
        def ListStreams(self, request: pb.ListStreamsRequest) -> pb.ListStreamsResponse:
            started.wait(10)
            return super().ListStreams(request)

    with serving(Slow()) as target:
        client = Client(target)
        threading.Timer(0.2, client.close).start()
        with pytest.raises(ConnectionFailed, match="the client was closed"):
            client.streams()
        started.set()


def test_a_refusal_for_now_is_waited_out() -> None:
    """The pause a store asks for comes over the wire, and is kept even by what is sent once."""
    pause = timedelta(milliseconds=20)
    refusals = [
        LimitExceeded("overloaded", detail=ErrorDetail("OVERLOADED", retry_after=pause)),
        ConnectionFailed("stopping", detail=ErrorDetail("STOPPING", retry_after=pause)),
    ]

    class Overloaded(FakeStore):
        def Define(self, request: pb.DefineRequest) -> pb.DefineResponse:
            if refusals:
                raise refusals.pop()
            return super().Define(request)

    with serving(Overloaded()) as target, Client(target) as client:
        assert client.define("CREATE STREAM s (a BIGINT)").stream.name == "s"
    assert not refusals


def test_details_come_through() -> None:
    with serving(FakeStore()) as target, Client(target) as client:
        with pytest.raises(QueryProblem) as caught:
            client.define("MAKE STREAM s")
        assert (caught.value.line, caught.value.column, caught.value.reason) == (1, 1, "SYNTAX")
        assert caught.value.hint == "CREATE STREAM …"
        assert caught.value.detail.row == -1


def test_a_line_that_is_cut_is_taken_up_again() -> None:
    cuts = {3: 1, 8: 1}

    def cut(request: object) -> None:
        sequence = request.sequence  # type: ignore[attr-defined]
        if cuts.pop(sequence, 0):
            raise ConnectionFailed("cut")

    with serving(FakeStore(), cut) as target, Client(target, retry=QUICK) as client:
        name = trades(client)
        many = client.publisher("me").publish_many(name, [[trade("x", 1.0, n)] for n in range(12)])
        assert many.row_count == 12
        assert client.stream(name).row_count == 12


async def test_the_async_client_does_what_the_other_does() -> None:
    with serving(FakeStore()) as target:
        async with AsyncClient(target) as client:
            await client.define("CREATE STREAM s (a BIGINT)")
            query = await client.register("SELECT a FROM s WHERE a > 2", key="k")
            publisher = client.publisher("me")
            many = await publisher.publish_many("s", [[{"a": n}] for n in range(10)])
            await publisher.publish("s", [{"a": 10}])
            assert (many.row_count, publisher.next_sequence) == (10, 12)
            assert [row["a"] for row in await client.invoke(query)] == list(range(3, 11))
            async with await client.invoke_stream(query) as answer:
                values = [value async for batch in answer for value in batch.column(0).to_pylist()]
            assert values == list(range(3, 11))
            listed = [piece.key async for piece in client.registrations(page_size=1)]
            assert listed == ["k"]
            registration, all_ = await asyncio.gather(client.stream("s"), client.streams())
            assert [registration.id] == [piece.id for piece in all_]
            await client.unregister(query)
            with pytest.raises(NotFound):
                await client.invoke(query)


async def test_an_async_line_that_is_cut_is_taken_up_again() -> None:
    cuts = {2: 1, 9: 1}

    def cut(request: object) -> None:
        sequence = request.sequence  # type: ignore[attr-defined]
        if cuts.pop(sequence, 0):
            raise ConnectionFailed("cut")

    with serving(FakeStore(), cut) as target:
        async with AsyncClient(target, retry=QUICK) as client:
            await client.define("CREATE STREAM s (a BIGINT)")
            many = await client.publisher("me").publish_many("s", [[{"a": n}] for n in range(12)])
            assert many.row_count == 12
            assert (await client.stream("s")).row_count == 12


@pytest.mark.parametrize("refused", [1, 3, 7])
async def test_a_refusal_on_a_line_is_read_as_such(refused: int) -> None:
    def refuse(request: object) -> None:
        if request.sequence == refused:  # type: ignore[attr-defined]
            raise NotFound("no")

    with serving(FakeStore(), refuse) as target:
        async with AsyncClient(target) as client:
            await client.define("CREATE STREAM s (a BIGINT)")
            publisher = client.publisher("me")
            with pytest.raises(NotFound):
                await publisher.publish_many("s", [[{"a": n}] for n in range(12)])
            assert publisher.next_sequence == refused
        with Client(target) as second, pytest.raises(NotFound):
            second.publisher("me").publish_many("s", [[{"a": n}] for n in range(12)])
