"""A store that loses requests and acknowledgements, and the rows that tests queue for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from client_sdk import Client, ConnectionFailed, Retry, Timeout
from psoup.v1 import psoup_pb2 as pb
from tests.support.client_sdk.fake_store import FakeStore

SQL = "CREATE STREAM s (a BIGINT, b TEXT)"


class FlakyStore(FakeStore):
    """`faults` says, for each publish, whether it is lost on its way there or on its way back.

    One that `forgets` is like a restarted server: it knows only the last batch of each publisher.
    """

    def __init__(self) -> None:
        super().__init__()
        self.faults: Iterator[str] = iter(())
        self.forgets = False
        self.taken_rows: list[int] = []
        self.taken_bytes: list[int] = []

    def Publish(self, request: pb.PublishRequest) -> pb.PublishResponse:
        fault = next(self.faults, "")
        publisher = request.tenant, request.owner, request.publisher
        if self.forgets and (publisher, request.sequence + 1) in self._published:
            return pb.PublishResponse(
                position=b"last", first_row_id=-1, duplicate=True, unverified=True
            )
        if fault == "there":
            raise ConnectionFailed("cut")
        reply = super().Publish(request)
        self.taken_rows.append(reply.row_count)
        self.taken_bytes.append(request.ByteSize())
        if fault == "back":
            raise Timeout("cut")
        return reply

    def values(self, name: str = "s", column: str = "a") -> list[Any]:
        values: list[Any] = self._streams[name].rows.column(column).to_pylist()
        return values


def client_of(store: FakeStore) -> Client:
    return Client(transport=store.transport(), retry=Retry(attempts=1))


def rows(*values: int) -> list[dict[str, Any]]:
    return [{"a": value, "b": str(value)} for value in values]
