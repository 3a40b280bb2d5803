"""Bits that are flipped on the way to a store: what is written is what was sent, once."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import status_pb2

from client_sdk import Client, Copies, ForeignAnswer, PermissionDenied, PsoupError, Retry
from client_sdk._grpc.channels import from_rpc
from client_sdk._grpc.stubs import CHECKSUM_METADATA, with_checksum
from psoup.v1 import psoup_pb2 as pb
from tests.conftest import ROOT
from tests.support.client_sdk.flipping import FlippingLine, flipping
from tests.support.server.process import ServerProcess

SQL = "SELECT a FROM s{} WHERE a > 1000"
KEYED = "CREATE STREAM s (k BIGINT, v TEXT) KEY (k)"


@pytest.fixture
def line(shared_server: ServerProcess) -> Iterator[FlippingLine]:
    with flipping(shared_server.address) as line:
        yield line


@pytest.fixture
def direct(shared_server: ServerProcess, tenant: str) -> Iterator[Client]:
    with Client(shared_server.address, tenant=tenant) as client:
        yield client


@pytest.fixture
def flipped(line: FlippingLine, tenant: str) -> Iterator[Client]:
    """A client behind the line, which sends again until a request comes through."""
    retry = Retry(attempts=60, first=0.0)
    with Client(line.address, tenant=tenant, retry=retry) as client:
        yield client


def send(copies: Copies, client: Client) -> None:
    """Sends all that waits. A flip before the message is gRPC's error, which is not repeated."""
    for _ in range(500):
        try:
            copies.send(client)
            return
        except PsoupError:
            pass
    raise AssertionError("the queue never became empty")


def test_edits_of_an_outbox_are_stored_once_and_none_is_rejected(
    direct: Client, flipped: Client, line: FlippingLine, tmp_path: Path
) -> None:
    line.flipping = False
    flipped.define(KEYED)
    with Copies(tmp_path / "phone.db") as copies:
        for number in range(30):
            copies.publish("s", [{"k": number % 7, "v": f"value {number}"}])
        copies.delete("s", [{"k": 6}])
        copies.learn(flipped, "s")
        line.flipping = True
        send(copies, flipped)
        assert line.flips > 10
        assert (copies.rejected, copies.doubtful, copies.queued.batches) == ([], [], 0)
    assert direct.stream("s").row_count == 31
    rows = direct.ask("SELECT k, v FROM s ORDER BY k").rows
    assert rows == [{"k": k, "v": f"value {v}"} for k, v in enumerate([28, 29, 23, 24, 25, 26])]


def test_many_batches_on_one_line(direct: Client, flipped: Client, line: FlippingLine) -> None:
    direct.define("CREATE STREAM s (a BIGINT)")
    batches = [[{"a": number}] for number in range(40)]
    publisher = flipped.publisher("loader")
    while publisher.next_sequence <= 40:
        with contextlib.suppress(PsoupError):
            publisher.publish_many("s", batches[publisher.next_sequence - 1 :])
    assert line.flips > 10
    assert [row["a"] for row in direct.ask("SELECT a FROM s")] == list(range(40))


def test_definitions_and_registrations(direct: Client, flipped: Client, line: FlippingLine) -> None:
    """Those that may be repeated are, and nothing else than what was sent is there."""
    for number in range(20):
        sql = f"CREATE STREAM s{number} (a BIGINT)"
        try:
            flipped.define(sql)
            flipped.register(SQL.format(number), key=f"key {number}")
        except PsoupError:
            pass
    assert line.flips > 10
    assert {registration.name for registration in direct.streams()} <= {
        f"s{number}" for number in range(20)
    }
    for registration in direct.registrations():
        assert registration.key is not None and registration.sql == SQL.format(
            registration.key.removeprefix("key ")
        )


def refusal_of(shared_server: ServerProcess, content: bytes, promised: bool = False) -> str:
    """Sends the bytes of a Publish; the reason of its refusal, or nothing."""
    with grpc.insecure_channel(shared_server.address) as channel:
        call: Any = channel.unary_unary("/psoup.v1.Psoup/Publish", None, None)
        try:
            call(content, timeout=120, metadata=[CHECKSUM_METADATA] if promised else None)
        except grpc.RpcError as error:
            return from_rpc(error, shared_server.address).reason
    return ""


@pytest.fixture
def request_of_one_row(direct: Client, tenant: str) -> pb.PublishRequest:
    direct.define("CREATE STREAM s (a BIGINT)")
    rows = pb.Rows(columns=["a"], rows=[pb.Row(values=[pb.Value(bigint=7)])])
    return pb.PublishRequest(tenant=tenant, stream="s", publisher="p", sequence=1, rows=rows)


def test_every_bit_of_a_request(
    shared_server: ServerProcess, direct: Client, request_of_one_row: pb.PublishRequest
) -> None:
    content = with_checksum(request_of_one_row)
    assert pb.PublishRequest.FromString(content).HasField("checksum")
    with grpc.insecure_channel(shared_server.address) as channel:
        call: Any = channel.unary_unary("/psoup.v1.Psoup/Publish", None, None)
        for bit in range(8 * len(content)):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(grpc.RpcError) as caught:
                call(bytes(flipped), timeout=120, metadata=[CHECKSUM_METADATA])
            refusal = from_rpc(caught.value, shared_server.address)
            assert (refusal.code, refusal.reason) == ("ABORTED", "GARBLED"), bit
            assert refusal.detail.retry_after is not None
    assert direct.stream("s").row_count == 0
    assert refusal_of(shared_server, content, promised=True) == ""


def test_a_promised_checksum_that_is_not_there(
    shared_server: ServerProcess, request_of_one_row: pb.PublishRequest
) -> None:
    content = request_of_one_row.SerializeToString()
    for cut in range(len(content) + 1):
        assert refusal_of(shared_server, content[:cut], promised=True) == "GARBLED"


def test_a_checksum_without_a_promise(
    shared_server: ServerProcess, request_of_one_row: pb.PublishRequest
) -> None:
    """It is looked at all the same. Tools that can't compute one may leave it out."""
    content = request_of_one_row.SerializeToString()
    request_of_one_row.checksum = 12345
    assert refusal_of(shared_server, request_of_one_row.SerializeToString()) == "GARBLED"
    assert refusal_of(shared_server, bytes([15 << 3 | 5]) + bytes(4) + content) == "GARBLED"
    assert refusal_of(shared_server, b"\xff" * 30) == "BAD_REQUEST"
    request_of_one_row.checksum = zlib.crc32(content)
    assert refusal_of(shared_server, request_of_one_row.SerializeToString()) == ""
    assert refusal_of(shared_server, content) == ""


class Failure(grpc.RpcError):
    """A call that failed with a status, whose details may be of another one."""

    def __init__(self, code: grpc.StatusCode, details: bytes) -> None:
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "no"

    def trailing_metadata(self) -> Any:
        return [("grpc-status-details-bin", self._details)]


def test_a_refusal_that_is_not_what_was_sent_says_nothing_of_the_request() -> None:
    """PERMISSION_DENIED is one bit from INVALID_ARGUMENT, for which a batch is put aside."""
    status = status_pb2.Status(code=7)
    status.details.add().Pack(pb.ErrorDetail(reason="PERMISSION_DENIED", store_id="s"))
    content = status.SerializeToString()
    whole = from_rpc(Failure(grpc.StatusCode.PERMISSION_DENIED, content), "there")
    assert (type(whole), whole.detail.store_id) == (PermissionDenied, "s")
    for code, details in (
        (grpc.StatusCode.INVALID_ARGUMENT, content),
        (grpc.StatusCode.PERMISSION_DENIED, content[:-1]),
    ):
        garbled = from_rpc(Failure(code, details), "there")
        assert isinstance(garbled, ForeignAnswer) and not garbled.detail.store_id


def test_the_documented_request() -> None:
    beat = Timestamp(seconds=1)
    request = pb.PublishRequest(stream="trades", publisher="desk", sequence=1, heartbeat=beat)
    assert (
        with_checksum(request).hex()
        in (ROOT / "docs" / "reference" / "protocol.md").read_text().split()
    )


def test_the_number_of_the_checksum_is_the_highest_of_every_request() -> None:
    for method in pb.DESCRIPTOR.services_by_name["Psoup"].methods:
        for field in method.input_type.fields:
            assert field.name == "checksum" or field.number < 15, field.full_name
