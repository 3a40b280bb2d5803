"""A channel to which no store answers is given up; the calls on it are not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from client_sdk import AsyncClient, Client, ConnectionFailed, Retry, Timeout
from client_sdk._exceptions import ErrorDetail, PsoupError
from client_sdk._grpc.channels import _LEAST_CHANNEL_SECONDS, Channels, CountedChannel
from tests.support.client_sdk.fake_store import FakeStore
from tests.support.client_sdk.loopback import serving

LOST = ConnectionFailed("no answer")
REFUSED = ConnectionFailed("not now", detail=ErrorDetail("STOPPING", store_id="s"))


@pytest.fixture
def channels() -> Channels:
    numbers = iter(range(100))
    return Channels(["one"], lambda target: (next(numbers), None))


def aged(channel: CountedChannel) -> CountedChannel:
    channel.created_at -= _LEAST_CHANNEL_SECONDS
    return channel


@pytest.mark.parametrize("error", [None, REFUSED, PsoupError("something else")])
def test_a_channel_on_which_a_store_answered_stays(
    channels: Channels, error: PsoupError | None
) -> None:
    channel = aged(channels.take())
    assert channels.give_back(channel, error) is None
    assert channels.take() is channel


@pytest.mark.parametrize("error", [LOST, Timeout("too late")])
def test_one_on_which_none_did_is_replaced(channels: Channels, error: PsoupError) -> None:
    channel = aged(channels.take())
    assert channels.give_back(channel, error) == channel.channel
    assert channels.take().channel == channel.channel + 1


def test_it_is_not_replaced_again_at_once(channels: Channels) -> None:
    channel = channels.take()
    assert channels.give_back(channel, LOST) is None
    assert channels.take() is channel


def test_calls_under_way_keep_their_channel(channels: Channels) -> None:
    first, second = aged(channels.take()), channels.take()
    assert first is second and channels.give_back(first, LOST) is None
    assert channels.take() is not second
    assert channels.give_back(second) == second.channel
    assert channels.close() == [second.channel + 1]


def several(*targets: str) -> Channels:
    return Channels(targets, lambda target: (target, None))


def test_of_several_servers_the_next_is_tried_at_once() -> None:
    channels = several("a", "b", "c")
    for name in ("a", "b"):
        channel = channels.take()
        assert channel.target == name
        channels.give_back(channel, LOST)
    channel = channels.take()
    assert channel.target == "c"
    channels.give_back(channel)
    assert channels.take() is channel


def test_if_all_are_away_each_is_tried_again_after_a_second() -> None:
    channels = several("a", "b")
    channels.give_back(channels.take(), LOST)
    second = channels.take()
    channels.give_back(second, LOST)
    assert channels.take() is second
    channels.give_back(aged(second), LOST)
    assert channels.take().target == "a"


def test_a_server_that_stops_is_left_if_there_is_another() -> None:
    channels = several("a", "b")
    channels.give_back(channels.take(), REFUSED)
    assert channels.take().target == "b"


def test_only_a_request_that_was_not_sent_goes_elsewhere() -> None:
    unsent = "failed to connect to all addresses; last error: refused"
    for message, elsewhere in ((unsent, True), ("Socket closed", False)):
        error = ConnectionFailed(message)
        channels = several("a", "b")
        channels.give_back(channels.take(), error)
        assert error.elsewhere is elsewhere
    last = ConnectionFailed(unsent)
    channels.give_back(channels.take(), last)
    channels.give_back(channels.take(), last)
    assert not last.elsewhere


def test_after_closing_there_is_none(channels: Channels) -> None:
    channel = channels.take()
    assert channels.close() == [channel.channel]
    assert channels.give_back(channel) is None
    with pytest.raises(ValueError, match="closed"):
        channels.take()


class Relay:
    """A proxy to a server. Connections that are open when it `stalls` carry nothing any more."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._stalled: set[Any] = set()
        self._lines: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        self._stalled.update(end for line in self._lines for end in line)

    def close(self) -> None:
        self._listening.close()
        for end in (end for line in self._lines for end in line):
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._lines.append((near, far))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while content := source.recv(65536):
                if source not in self._stalled:
                    sink.sendall(content)
        except OSError:
            return


@contextmanager
def relayed() -> Iterator[Relay]:
    with serving(FakeStore()) as target:
        relay = Relay(target)
        try:
            yield relay
        finally:
            relay.close()


# For calls over a dead line only. A younger channel would not be replaced.
STALLED_SECONDS = 1.1 * _LEAST_CHANNEL_SECONDS


def test_a_dead_line_is_left_after_one_timeout() -> None:
    """As after a change of networks: nothing reports that it is dead."""
    with (
        relayed() as relay,
        Client(relay.address, retry=Retry(attempts=1)) as client,
    ):
        assert client.streams() == []
        relay.stall()
        with pytest.raises(Timeout):
            client.status(timeout=STALLED_SECONDS)
        assert client.streams() == []


async def test_a_dead_line_is_left_by_the_async_client_too() -> None:
    with relayed() as relay:
        async with AsyncClient(relay.address, retry=Retry(attempts=1)) as client:
            assert await client.streams() == []
            relay.stall()
            with pytest.raises(Timeout):
                await client.status(timeout=STALLED_SECONDS)
            assert await client.streams() == []


def test_a_client_goes_on_with_a_new_channel_while_a_stream_is_read() -> None:
    with serving(FakeStore()) as target, Client(target) as client:
        client.define("CREATE STREAM s (a BIGINT)")
        client.publish("s", [{"a": n} for n in range(1000)])
        with client.invoke_stream(client.register("SELECT a FROM s")) as answer:
            first = next(iter(answer))
            channels = client._transport._channels  # type: ignore[attr-defined]
            aged(channel := channels.take())
            channels.give_back(channel, LOST)
            assert client.streams()[0].name == "s"
            assert first.num_rows + sum(batch.num_rows for batch in answer) == 1000
