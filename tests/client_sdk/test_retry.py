"""What is sent again, and what never is."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from client_sdk import (
    Client,
    ConnectionFailed,
    ErrorDetail,
    InvalidRequest,
    LimitExceeded,
    MockTransport,
    PsoupError,
    Retry,
    ServerError,
    Timeout,
    answer,
)
from client_sdk._grpc.effects import Attempts, Repeat
from psoup.v1 import psoup_pb2 as pb

HANDLE = bytes(16)
STREAM = pb.Stream(name="s", id=1, columns=[pb.Column(name="a", type="BIGINT")])
DOWN = ConnectionFailed("down")
RESET = ServerError("Received RST_STREAM with error code 2")


def connect(**handlers: Any) -> tuple[Client, MockTransport]:
    handlers.setdefault("DescribeStream", lambda request: STREAM)
    transport = MockTransport(handlers)
    return Client(transport=transport, retry=Retry(attempts=3, first=0.0)), transport


def test_a_read_survives_a_server_that_comes_back() -> None:
    client, transport = connect(Status=[DOWN, RESET, pb.StatusResponse(epoch=4)])
    assert client.status().epoch == 4
    assert len(transport.requests("Status")) == 3


CANCELLED = ServerError("shed", code="CANCELLED")


def refusal(code: str, seconds: float) -> PsoupError:
    detail = ErrorDetail("OVERLOADED", retry_after=timedelta(seconds=seconds), store_id="mock")
    return LimitExceeded("too much at once", detail=detail, code=code)


def test_a_call_that_was_cancelled_elsewhere_is_made_again() -> None:
    reply = pb.PublishResponse(position=b"p")
    client, transport = connect(
        Status=[CANCELLED, pb.StatusResponse(epoch=4)], Publish=[CANCELLED, reply, CANCELLED]
    )
    assert client.status().epoch == 4
    assert client.publish("s", [{"a": 1}], publisher="me", sequence=1).position == b"p"
    with pytest.raises(PsoupError, match="shed"):
        client.publish("s", [{"a": 1}])
    assert len(transport.requests("Publish")) == 3


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "UNAVAILABLE"])
def test_what_the_store_refuses_for_now_is_asked_again(code: str) -> None:
    """Also what is not to be sent twice: the store has done nothing of it."""
    client, transport = connect(Publish=[refusal(code, 0.0), pb.PublishResponse(position=b"p")])
    assert client.publish("s", [{"a": 1}]).position == b"p"
    assert len(transport.requests("Publish")) == 2


def test_the_pause_is_no_shorter_than_the_store_asks_for() -> None:
    retry = Retry(first=0.0)
    for _ in range(20):
        pause = Attempts(retry, Repeat.READ, None).pause_after(refusal("UNAVAILABLE", 2.0))
        assert 2.0 <= pause <= 3.0
    with pytest.raises(LimitExceeded):
        Attempts(retry, Repeat.READ, timeout=1.0).pause_after(refusal("UNAVAILABLE", 2.0))


def test_too_much_without_a_time_to_wait_is_final() -> None:
    client, transport = connect(Status=[LimitExceeded("too much")] * 2)
    with pytest.raises(LimitExceeded):
        client.status()
    assert len(transport.calls) == 1


def test_retries_end() -> None:
    client, transport = connect(Status=[DOWN] * 9)
    with pytest.raises(ConnectionFailed):
        client.status()
    assert len(transport.requests("Status")) == 3


def test_an_answer_cut_in_the_middle_is_asked_for_again() -> None:
    def broken(request: pb.InvokeRequest) -> Any:
        yield answer({"a": "BIGINT"}, [{"a": 1}])[0]
        raise DOWN

    whole = answer({"a": "BIGINT"}, [{"a": 1}])
    client, _ = connect(Invoke=[broken(pb.InvokeRequest()), whole])
    assert client.invoke(HANDLE).rows == [{"a": 1}]


@pytest.mark.parametrize("error", [DOWN, RESET])
def test_a_publish_without_identity_is_sent_once(error: PsoupError) -> None:
    client, transport = connect(Publish=[error, pb.PublishResponse()])
    with pytest.raises(PsoupError):
        client.publish("s", [{"a": 1}])
    assert len(transport.requests("Publish")) == 1


def test_a_publish_with_identity_is_sent_again() -> None:
    client, transport = connect(Publish=[DOWN, pb.PublishResponse(position=b"p", duplicate=True)])
    assert client.publish("s", [{"a": 1}], publisher="me", sequence=1).duplicate
    first, second = transport.requests("Publish")
    assert first == second
    assert client.position == b"p"


def test_a_register_is_sent_again_only_with_a_key() -> None:
    reply = pb.RegisterResponse(handle=HANDLE, position=b"p", created=True)
    client, transport = connect(Register=[DOWN, reply])
    with pytest.raises(ConnectionFailed):
        client.register("SELECT a FROM s")
    assert len(transport.requests("Register")) == 1
    client, transport = connect(Register=[DOWN, reply])
    assert client.register("SELECT a FROM s", key="k").handle == HANDLE


@pytest.mark.parametrize("verb", ["define", "unregister", "heartbeat"])
def test_other_writes_are_sent_once(verb: str) -> None:
    client, transport = connect(Define=[DOWN] * 2, Unregister=[DOWN] * 2, Publish=[DOWN] * 2)
    calls = {
        "define": lambda: client.define("DROP STREAM s"),
        "unregister": lambda: client.unregister(HANDLE),
        "heartbeat": lambda: client.heartbeat("s", datetime(2026, 1, 1)),
    }
    with pytest.raises(ConnectionFailed):
        calls[verb]()
    assert len(transport.calls) == 1


def test_a_refusal_is_not_repeated() -> None:
    client, transport = connect(Status=[InvalidRequest("no")] * 2)
    with pytest.raises(InvalidRequest):
        client.status()
    assert len(transport.calls) == 1


def test_no_pause_reaches_past_the_deadline() -> None:
    attempts = Attempts(Retry(first=60.0), Repeat.READ, timeout=1.0)
    with pytest.raises(ConnectionFailed):
        attempts.pause_after(DOWN)


def test_a_deadline_that_has_passed_is_a_timeout() -> None:
    with pytest.raises(Timeout):
        Attempts(Retry(), Repeat.READ, timeout=0.0).remaining()


def test_a_deadline_that_passes_in_a_pause_tells_what_was_met() -> None:
    attempts = Attempts(Retry(first=0.0), Repeat.READ, timeout=0.05)
    attempts.pause_after(DOWN)
    time.sleep(0.06)
    with pytest.raises(ConnectionFailed):
        attempts.remaining()


def test_pauses_double_up_to_the_longest() -> None:
    retry = Retry(first=1.0, longest=5.0)
    for attempts, whole in enumerate([1.0, 2.0, 4.0, 5.0, 5.0], start=1):
        assert whole / 2 <= retry.pause(attempts) <= whole


def test_many_batches_carry_on_after_a_cut() -> None:
    sequences: list[int] = []
    failures = {3: 1, 7: 2}

    def publish(request: pb.PublishRequest) -> pb.PublishResponse:
        if failures.get(request.sequence, 0):
            failures[request.sequence] -= 1
            raise DOWN
        duplicate = request.sequence in sequences
        if not duplicate:
            sequences.append(request.sequence)
        return pb.PublishResponse(
            position=b"%d" % request.sequence, row_count=1, duplicate=duplicate
        )

    client, _ = connect(Publish=publish)
    publisher = client.publisher("me")
    many = publisher.publish_many("s", ([{"a": n}] for n in range(10)))
    assert sequences == list(range(1, 11))
    assert (many.batches, many.row_count, publisher.next_sequence) == (10, 10, 11)
    assert client.position == b"10"


def test_a_bad_batch_waits_for_those_before_it() -> None:
    client, transport = connect(Publish=lambda request: pb.PublishResponse(row_count=1))
    sequences: list[int] = []
    publisher = client.publisher("me")
    with pytest.raises(InvalidRequest):
        publisher.publish_many(
            "s",
            [[{"a": 1}], [{"a": 2}], [{"a": "x"}]],
            progress=lambda p: sequences.append(p.row_count),
        )
    assert (sequences, publisher.next_sequence) == ([1, 1], 3)
    assert len(transport.requests("PublishStream")) == 2


def test_a_refused_batch_ends_the_line_there() -> None:
    def publish(request: pb.PublishRequest) -> pb.PublishResponse:
        if request.sequence == 3:
            raise InvalidRequest("no")
        return pb.PublishResponse(row_count=1)

    client, _ = connect(Publish=publish)
    publisher = client.publisher("me")
    with pytest.raises(InvalidRequest):
        publisher.publish_many("s", [[{"a": n}] for n in range(10)])
    assert publisher.next_sequence == 3
