"""The client for programs on an event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from client_sdk import _flows, _publishing
from client_sdk._client import DEFAULT_TIMEOUT, STREAM_TIMEOUT
from client_sdk._credentials import Credentials
from client_sdk._flows import SEEN, Knowledge, Seen, ask_request, invoke_request
from client_sdk._grpc.drivers import async_drive
from client_sdk._grpc.effects import Flow, Retry
from client_sdk._grpc.transports import AsyncGrpcTransport, AsyncTransport
from client_sdk._publishing import AsyncPublisher
from client_sdk._session import DEFAULT_TARGET, MEBIBYTE, HandleLike, Session, with_port
from client_sdk._wire.access import AuditRecord, Grant, PublisherRecord, Quota
from client_sdk._wire.answers import Answer, AnswerHeader, AnswerReader
from client_sdk._wire.explanations import Explanation
from client_sdk._wire.keys import AccessKey, NewKey
from client_sdk._wire.models import (
    Definition,
    Published,
    Registered,
    RegisteredMany,
    Registration,
    Stream,
    View,
)
from client_sdk._wire.rows import Rows, deletes
from client_sdk._wire.status import StoreClock, StoreStatus
from client_sdk._wire.values import Scalar
from psoup.v1 import psoup_pb2 as pb

T = TypeVar("T")


class AsyncClient:
    """An async client has the verbs, deadlines, retries and `position` of `Client`, with `await`.

    `registrations()` and the batches of an answer are async iterators.
    """

    def __init__(
        self,
        target: str = DEFAULT_TARGET,
        *,
        tenant: str | None = None,
        owner: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        retry: Retry | None = None,
        max_message_bytes: int = 16 * MEBIBYTE,
        credentials: Credentials | None = None,
        transport: AsyncTransport | None = None,
    ) -> None:
        self._session = Session(
            tenant or "", owner or "", timeout, retry or Retry(), max_message_bytes
        )
        self._transport = transport or AsyncGrpcTransport(
            with_port(target), max_message_bytes, credentials
        )

    async def define(self, sql: str) -> Definition:
        """Runs one statement that creates, drops, grants or revokes."""
        return await self._run(_flows.define(self._session, sql))

    async def streams(self) -> list[Stream]:
        return await self._run(_flows.streams(self._session))

    async def views(self) -> list[View]:
        return await self._run(_flows.views(self._session))

    async def stream(self, name: str) -> Stream:
        return await self._run(_flows.stream(self._session, name))

    async def register(
        self,
        sql: str,
        *,
        key: str | None = None,
        parameters: Mapping[str, Scalar] | None = None,
        lease: timedelta | None = None,
        replace: bool = False,
    ) -> Registered:
        """Registers a standing query. With a `key` the same call gives the same registration, for
        ever.

        With `replace` this query takes the place of another one under the key: its handle and lease
        stay, and copies of it get the new answer whole. Without it that raises Conflict.
        """
        return await self._run(_flows.register(self._session, sql, key, parameters, lease, replace))

    async def register_many(
        self, sql: str, table: Any, *, lease: timedelta | None = None, replace: bool = False
    ) -> RegisteredMany:
        """Registers one text once for each row of a table of its `:name` values; all rows or none.

        The table is a list of dicts, Arrow or pandas, and may have a column `client_key`; with
        `replace` keys that have other queries get these.
        """
        return await self._run(_flows.register_many(self._session, sql, table, lease, replace))

    async def unregister(self, handle: HandleLike) -> None:
        await self._run(_flows.unregister(self._session, handle))

    async def registrations(
        self, *, owner: str | None = None, page_size: int = 0
    ) -> AsyncIterator[Registration]:
        """Gives the registrations of `owner` (None: of all), page by page as you iterate."""
        token = ""
        while True:
            page, token = await self._run(
                _flows.registrations_page(self._session, owner or "", page_size, token)
            )
            for registration in page:
                yield registration
            if not token:
                return

    async def registration(self, handle: HandleLike) -> Registration:
        return await self._run(_flows.registration(self._session, handle))

    async def publish(
        self,
        stream: str,
        rows: Rows,
        *,
        publisher: str | None = None,
        sequence: int | None = None,
    ) -> Published:
        """Publishes one batch, accepted whole or refused whole, and durable when this returns.

        Rows are a list of dicts, an Arrow table or batch, or a DataFrame. Without an identity a
        batch whose fate is unknown (ConnectionFailed, Timeout) may be there or not; with one just
        publish it again.
        """
        numbered = _publishing.identity(publisher, sequence)
        return await self._run(_publishing.publish(self._session, stream, rows, numbered))

    async def delete(
        self,
        stream: str,
        keys: Iterable[Mapping[str, Any]],
        *,
        publisher: str | None = None,
        sequence: int | None = None,
    ) -> Published:
        """Deletes keys of a keyed stream: one batch of rows that end the current ones.

        A key is a dict of the key's columns, and of the event time where the stream has one.
        """
        return await self.publish(stream, deletes(keys), publisher=publisher, sequence=sequence)

    async def heartbeat(self, stream: str, instant: datetime) -> Published:
        """Moves NOW of an event-time stream to `instant`, if that is later."""
        return await self._run(_publishing.heartbeat(self._session, stream, instant, None))

    def publisher(self, name: str, *, next_sequence: int = 1) -> AsyncPublisher:
        """Makes a publisher, which counts sequences and publishes many batches on one line."""
        return AsyncPublisher(self._run, self._session, _publishing.numbering(name, next_sequence))

    async def invoke(
        self,
        handle: HandleLike,
        *,
        window: str | None = None,
        as_of: datetime | None = None,
        knowledge: Knowledge = "then",
        least_position: bytes | Seen | None = SEEN,
        wait_for_engine: bool = False,
        unrefreshed: bool = False,
        latest: bool = False,
        timeout: float | None = None,
    ) -> Answer:
        """Gives the current answer, or one with another window, or as of an earlier instant.

        `least_position` is the newest this client has seen; None asks for none. With
        `wait_for_engine` the server computes no rows on the spot that the engine is yet to match.
        `unrefreshed` leaves REFRESH out. With `latest` no stream is waited for: NOW is the greatest
        ts that any event-time stream of the query has reached.
        """
        request = invoke_request(
            self._session,
            window,
            as_of,
            knowledge,
            least_position,
            wait_for_engine,
            unrefreshed,
            latest,
        )
        timeout = self._session.timeout if timeout is None else timeout
        return await self._run(_flows.invoke(self._session, handle, request, timeout))

    async def invoke_stream(
        self,
        handle: HandleLike,
        *,
        window: str | None = None,
        as_of: datetime | None = None,
        knowledge: Knowledge = "then",
        least_position: bytes | Seen | None = SEEN,
        wait_for_engine: bool = False,
        unrefreshed: bool = False,
        latest: bool = False,
        timeout: float = STREAM_TIMEOUT,
    ) -> AsyncAnswerStream:
        """Gives the answer of `invoke` as Arrow batches, as they come. Use it in `async with`."""
        request = invoke_request(
            self._session,
            window,
            as_of,
            knowledge,
            least_position,
            wait_for_engine,
            unrefreshed,
            latest,
        )
        first, rest = await self._run(_flows.begin_invoke(self._session, handle, request, timeout))
        return AsyncAnswerStream(first, rest)

    async def ask(
        self,
        sql: str,
        *,
        parameters: Mapping[str, Scalar] | None = None,
        as_of: datetime | None = None,
        knowledge: Knowledge = "then",
        least_position: bytes | Seen | None = SEEN,
        unrefreshed: bool = False,
        latest: bool = False,
        timeout: float | None = None,
    ) -> Answer:
        """Gives the answer of a query once, without registering it."""
        request = ask_request(
            self._session, sql, parameters, as_of, knowledge, least_position, unrefreshed, latest
        )
        timeout = self._session.timeout if timeout is None else timeout
        return await self._run(_flows.answer(self._session, request, timeout))

    async def ask_stream(
        self,
        sql: str,
        *,
        parameters: Mapping[str, Scalar] | None = None,
        as_of: datetime | None = None,
        knowledge: Knowledge = "then",
        least_position: bytes | Seen | None = SEEN,
        unrefreshed: bool = False,
        latest: bool = False,
        timeout: float = STREAM_TIMEOUT,
    ) -> AsyncAnswerStream:
        """Gives the answer of `ask` as Arrow batches, as `invoke_stream` does."""
        request = ask_request(
            self._session, sql, parameters, as_of, knowledge, least_position, unrefreshed, latest
        )
        first, rest = await self._run(_flows.begin_answer(self._session, request, timeout))
        return AsyncAnswerStream(first, rest)

    async def explain(
        self, handle: HandleLike, *, window: str | None = None, timeout: float | None = None
    ) -> Explanation:
        """Tells how a registration is matched, what it shares, and where the time of an invoke
        goes.
        """
        return await self._run(_flows.explain(self._session, handle, window, timeout))

    async def grants(self) -> list[Grant]:
        """The grants of the tenant, for those who administer it."""
        return await self._run(_flows.grants(self._session))

    async def quotas(self) -> list[Quota]:
        """The quotas of the tenant and its owners, for those who administer it."""
        return await self._run(_flows.quotas(self._session))

    async def set_quota(
        self, limits: Mapping[str, int], *, remove: Sequence[str] = (), owner: str = ""
    ) -> Quota:
        """Sets limits of the tenant, or of an owner of it; those that are not named stay."""
        return await self._run(_flows.set_quota(self._session, limits, remove, owner))

    async def publishers(
        self, *, owner: str = "", prefix: str = ""
    ) -> AsyncIterator[PublisherRecord]:
        """List publishers whose names begin with `prefix`, page by page: the caller's own, or those
        of `owner` (empty: of all owners) for those who administer the tenant."""
        token = ""
        while True:
            flow = _flows.publishers_page(self._session, owner, prefix, token)
            page, token = await self._run(flow)
            for publisher in page:
                yield publisher
            if not token:
                return

    async def forget_publishers(self, names: Sequence[str], *, owner: str = "") -> None:
        """Forget publishers that are done, all of the names or none: their sequences begin again
        with 1. A batch that one of them repeats afterwards is stored twice, or refused.
        """
        await self._run(_flows.forget_publishers(self._session, names, owner))

    async def audit(self, *, all_tenants: bool = False) -> AsyncIterator[AuditRecord]:
        """Lists what was administered, newest first, page by page, in the tenant; for operators in
        all of them with `all_tenants`."""
        token = ""
        tenant = "" if all_tenants else await self._run(_flows.own_tenant(self._session))
        while True:
            page = _flows.audit_page(self._session, tenant, token)
            records, token = await self._run(page)
            for record in records:
                yield record
            if not token:
                return

    async def clock(
        self, *, confirm: Sequence[int] = (), timeout: float | None = None
    ) -> StoreClock:
        """Tells what is known of the servers' clocks; first confirms jumps with these numbers."""
        return await self._run(_flows.clock(self._session, confirm, timeout))

    async def status(self, *, timeout: float | None = None) -> StoreStatus:
        return await self._run(_flows.status(self._session, timeout))

    async def create_key(
        self,
        owner: str,
        *,
        roles: Sequence[str] = (),
        claims: Mapping[str, Any] | None = None,
        expires: datetime | None = None,
        tenant: str | None = None,
    ) -> NewKey:
        """Makes a static key for an owner of the client's tenant, or of another `tenant`. Its
        secret is told this once.

        Only administrators of the tenant may, and operators for every tenant.
        """
        return await self._run(
            _flows.create_key(self._session, owner, roles, claims, expires, tenant)
        )

    async def access_keys(self, *, tenant: str | None = None) -> list[AccessKey]:
        """Gives the static keys of the tenant, without their secrets."""
        return await self._run(_flows.keys(self._session, tenant))

    async def revoke_key(self, id: str, *, tenant: str | None = None) -> AccessKey:
        """Ends a static key: within seconds every server refuses it, and ends open watches."""
        return await self._run(_flows.revoke_key(self._session, id, tenant))

    async def owner(self) -> str:
        """Gives the owner this client acts as, for which it asks the store where it must."""
        return await self._run(_flows.own_name(self._session))

    @property
    def position(self) -> bytes | None:
        """The newest position seen; None before any. Set it to go on where another stopped."""
        return self._session.position

    @position.setter
    def position(self, position: bytes | None) -> None:
        self._session.position = position

    async def close(self) -> None:
        await self._transport.async_close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, flow: Flow[T]) -> T:
        return await async_drive(flow, self._transport)


class AsyncAnswerStream:
    """An answer under way has its `header`, and gives Arrow batches as you iterate.

    The batches together are the answer; an answer that ends short raises ServerError. Closing it
    early is fine and ends the transfer.
    """

    def __init__(
        self, first: pb.InvokeResponse, rest: AsyncGenerator[pb.InvokeResponse, None]
    ) -> None:
        self._reader = AnswerReader()
        self._reader.feed(first)
        self._rest = rest
        self.header: AnswerHeader = self._reader.header

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        async for message in self._rest:
            for batch in self._reader.feed(message):
                yield batch
        self._reader.finish()

    async def close(self) -> None:
        await self._rest.aclose()

    async def __aenter__(self) -> AsyncAnswerStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
