"""Streams that stay open end when what their caller has shown ends, on every server."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from client_sdk import Client, Credentials, Unauthenticated
from psoup.access.principal import Principal
from psoup.errors import Unauthenticated as Ended
from psoup.server.identity.endings import Endings
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.server.identity.conftest import NO_RETRY, World, first_key
from tests.support.server.process import ServerProcess, detail


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[str, ServerProcess, ServerProcess]]:
    """Two servers of one store that asks for keys because it has one, and that key."""
    operator = first_key(tmp_path / "store", "operator")
    first, second = (ServerProcess(tmp_path / "store", "--durability", "none") for _ in range(2))
    yield operator, first, second
    first.stop()
    second.stop()


def _client(server: ServerProcess, token: str) -> Client:
    return Client(server.address, credentials=Credentials(token), retry=NO_RETRY, timeout=120)


def _watch(server: ServerProcess, token: str, handle: bytes) -> Any:
    request = pb.WatchRequest(sync=pb.SyncRequest(items=[pb.SyncItem(handle=handle)]))
    call = server.stub.Watch(request, timeout=240, metadata=_shown(token))
    while not next(call).HasField("end"):
        pass
    return call


def _shown(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def _ending(call: Any) -> str:
    """The reason with which a call ends by itself."""
    with pytest.raises(grpc.RpcError) as error:
        for _ in call:
            pass
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    return detail(error.value).reason


@pytest.mark.process
def test_a_revoked_key_ends_its_watch_on_another_server(
    two: tuple[str, ServerProcess, ServerProcess],
) -> None:
    operator, first, second = two
    with _client(first, operator) as client:
        client.define("CREATE STREAM s (a BIGINT)")
        handle = client.register("SELECT a FROM s").handle
        key = client.create_key("main", roles=["administrator"])
        watch = _watch(second, key.secret, handle)
        operator_watch = _watch(second, operator, handle)
        requests: queue.SimpleQueue[pb.PublishRequest | None] = queue.SimpleQueue()
        line = second.stub.PublishStream(
            iter(requests.get, None), timeout=240, metadata=_shown(key.secret)
        )
        heartbeat = pb.PublishRequest(stream="s", rows=pb.Rows(columns=["a"], rows=[_row(1)]))
        requests.put(heartbeat)
        assert next(line).row_count == 1
        client.revoke_key(key.key.id)
        assert _ending(watch) == "UNAUTHENTICATED"
        assert _ending(line) == "UNAUTHENTICATED"
        requests.put(None)
        for server in (first, second):
            with _client(server, key.secret) as bob, pytest.raises(Unauthenticated):
                bob.streams()
        client.publish("s", [{"a": 2}])
        parts = [next(operator_watch) for _ in range(2)]
        assert any(part.HasField("rows") or part.HasField("begin") for part in parts)
        operator_watch.cancel()


def _row(number: int) -> pb.Row:
    return pb.Row(values=[pb.Value(bigint=number)])


@pytest.mark.process
def test_a_store_s_first_key_closes_it_to_anyone(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "store", "--durability", "none")
    try:
        with Client(server.address, retry=NO_RETRY) as anyone:
            anyone.define("CREATE STREAM s (a BIGINT)")
            handle = anyone.register("SELECT a FROM s").handle
            request = pb.WatchRequest(sync=pb.SyncRequest(items=[pb.SyncItem(handle=handle)]))
            watch = server.stub.Watch(request, timeout=240)
            while not next(watch).HasField("end"):
                pass
            key = anyone.create_key("root", roles=["operator"])
            assert _ending(watch) == "UNAUTHENTICATED"
            with pytest.raises(Unauthenticated, match="asks who calls"):
                anyone.status()
        with _client(server, key.secret) as root:
            assert root.owner() == "root"
            root.revoke_key(key.key.id)
            with pytest.raises(Unauthenticated):
                root.status()
        with Client(server.address, retry=NO_RETRY) as anyone, pytest.raises(Unauthenticated):
            anyone.status()
    finally:
        server.stop()


@pytest.mark.process
def test_an_expired_jwt_ends_its_watch(world: World) -> None:
    with world.client(world.operator) as client:
        client.define("CREATE STREAM jwt_watched (a BIGINT)")
        handle = client.register("SELECT a FROM jwt_watched").handle
    pair = world.authority.client("nobody")
    credentials = grpc.ssl_channel_credentials(
        world.authority.ca.read_bytes(), pair.key.read_bytes(), pair.cert.read_bytes()
    )
    token = world.issuer.token(tenant="main", sub="main", roles=["administrator"], seconds=2.0)
    with grpc.secure_channel(world.server.address, credentials) as channel:
        request = pb.WatchRequest(sync=pb.SyncRequest(items=[pb.SyncItem(handle=handle)]))
        call = PsoupStub(channel).Watch(request, timeout=240, metadata=_shown(token))
        while not next(call).HasField("end"):
            pass
        assert _ending(call) == "UNAUTHENTICATED"


class Valid:
    """An authenticator whose callers are valid until they are named."""

    def __init__(self) -> None:
        self.ended: set[str] = set()

    async def principal(self, context: Any) -> Principal:
        raise NotImplementedError

    def check(self, caller: Principal) -> None:
        if caller.credential in self.ended:
            raise Ended("gone")

    def refresh(self) -> None:
        raise NotImplementedError

    def modes(self) -> tuple[str, ...]:
        return ("keys",)


async def _numbers(pause: asyncio.Event) -> AsyncIterator[int]:
    yield 1
    await pause.wait()
    yield 2


async def test_only_the_streams_of_what_ended_are_ended() -> None:
    valid, pause = Valid(), asyncio.Event()
    endings = Endings(lambda: valid)
    callers = [Principal("t", "o", credential=name) for name in ("key 1", "key 1", "key 2")]
    streams = [endings.until_ended(caller, _numbers(pause)) for caller in callers]
    for stream in streams:
        assert await anext(stream) == 1
    waits = [asyncio.create_task(_all(stream)) for stream in streams]
    await asyncio.sleep(0)
    valid.ended = {"key 1"}
    endings.look()
    pause.set()
    outcomes = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Ended, Ended, list]
    assert outcomes[2] == [2] and not endings._open


async def test_a_stream_that_is_not_waited_for_ends_with_its_next_message() -> None:
    valid, pause = Valid(), asyncio.Event()
    endings = Endings(lambda: valid)
    stream = endings.until_ended(Principal("t", "o", credential="key 1"), _numbers(pause))
    assert await anext(stream) == 1
    valid.ended = {"key 1"}
    endings.look()
    pause.set()
    with pytest.raises(Ended):
        await anext(stream)


async def test_a_call_that_its_client_cancels_stays_cancelled() -> None:
    valid, pause = Valid(), asyncio.Event()
    endings = Endings(lambda: valid)
    stream = endings.until_ended(Principal("t", "o", credential="key 1"), _numbers(pause))
    assert await anext(stream) == 1
    wait = asyncio.create_task(_all(stream))
    await asyncio.sleep(0)
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert not endings._open


async def _all(stream: AsyncIterator[int]) -> list[int]:
    return [message async for message in stream]
