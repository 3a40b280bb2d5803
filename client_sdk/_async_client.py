"""The client for programs on an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

from client_sdk import _flows, _publishing
from client_sdk._answer_streams import AsyncAnswerStream
from client_sdk._client import DEFAULT_TIMEOUT_SECONDS, STREAM_TIMEOUT_SECONDS
from client_sdk._credentials import Credentials
from client_sdk._grpc.drivers import async_drive
from client_sdk._grpc.effects import Flow, Retry
from client_sdk._grpc.transports import AsyncGrpcTransport, AsyncTransport
from client_sdk._publishing import AsyncPublisher
from client_sdk._requests import SEEN, Knowledge, Seen, ask_request, invoke_request
from client_sdk._session import DEFAULT_TARGET, MEBIBYTE, HandleLike, Session, targets_of
from client_sdk._wire.access import AuditRecord, Grant, PublisherRecord, Quota
from client_sdk._wire.answers import Answer
from client_sdk._wire.explanations import Explanation
from client_sdk._wire.keys import AccessKey, NewKey
from client_sdk._wire.models import (
    Definition,
    Function,
    Published,
    Registered,
    RegisteredMany,
    Registration,
    Stream,
    View,
)
from client_sdk._wire.rows import Rows, deletes, patches
from client_sdk._wire.status import StoreClock, StoreStatus, StoreZones
from client_sdk._wire.values import Scalar

T = TypeVar("T")


class AsyncClient:
    """A client of one store, for programs on an event loop.

    It has the methods, deadlines, retries and `position` of `Client`, with `await`. Methods that
    yield are async iterators.
    """

    def __init__(
        self,
        target: str | Sequence[str] = DEFAULT_TARGET,
        *,
        tenant: str | None = None,
        owner: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        retry: Retry | None = None,
        max_message_bytes: int = 16 * MEBIBYTE,
        credentials: Credentials | None = None,
        transport: AsyncTransport | None = None,
    ) -> None:
        self._session = Session(
            tenant or "", owner or "", timeout, retry or Retry(), max_message_bytes
        )
        self._transport = transport or AsyncGrpcTransport(
            targets_of(target), max_message_bytes, credentials
        )

    async def define(self, sql: str) -> Definition:
        """Run one statement that creates, drops, grants or revokes.

        Return what it defined; `ended` names what a DROP ended. Raises QueryProblem, which points
        at the place in the text.
        """
        return await self._run(_flows.define(self._session, sql))

    async def streams(self) -> list[Stream]:
        """Return the streams of the tenant that the caller may see."""
        return await self._run(_flows.streams(self._session))

    async def views(self) -> list[View]:
        """Return the views of the tenant that the caller may see."""
        return await self._run(_flows.views(self._session))

    async def functions(self) -> list[Function]:
        """Return the functions of the tenant that the caller may see."""
        return await self._run(_flows.functions(self._session))

    async def stream(self, name: str) -> Stream:
        """Return one stream: its columns, its key, its retention. Raises NotFound."""
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
        """Register a standing query and return its handle.

        `key` is the client key, a name of your own for the registration: the same call with the
        same key returns the same registration. Without a key each call makes another one.
        `parameters` are the values of `:name` in the text. The registration ends if nothing invokes
        or syncs it for as long as `lease`; None is the store's default, 30 days.

        Another query under a key that is in use raises Conflict. With `replace` it takes the place
        of the first one: handle and lease stay, and copies get the new answer whole.
        """
        return await self._run(_flows.register(self._session, sql, key, parameters, lease, replace))

    async def register_many(
        self, sql: str, table: Any, *, lease: timedelta | None = None, replace: bool = False
    ) -> RegisteredMany:
        """Register one text once for each row of a table of its `:name` values, all rows or none.

        `table` is a list of dicts, an Arrow table or a DataFrame. Its column `client_key`, if it
        has one, holds a client key for each row. With `replace`, keys that have other queries get
        these.
        """
        return await self._run(_flows.register_many(self._session, sql, table, lease, replace))

    async def unregister(self, handle: HandleLike) -> None:
        """End a registration, named by its handle or client key. Raises NotFound."""
        await self._run(_flows.unregister(self._session, handle))

    async def registrations(
        self,
        *,
        owner: str | None = None,
        page_size: int = 0,
        stream: str | None = None,
        contains: str | None = None,
    ) -> AsyncIterator[Registration]:
        """Yield the registrations of `owner`, or of every owner if it is None, page by page.

        With `stream` only those over a stream or view, with `contains` only those that have this in
        their text or client key, in upper or lower case. Raises NotFound for an unknown stream.
        """
        token = ""
        while True:
            page, token = await self._run(
                _flows.registrations_page(
                    self._session, owner or "", page_size, token, stream=stream, contains=contains
                )
            )
            for registration in page:
                yield registration
            if not token:
                return

    async def registration(self, handle: HandleLike) -> Registration:
        """Return one registration, named by its handle or client key. Raises NotFound."""
        return await self._run(_flows.registration(self._session, handle))

    async def publish(
        self,
        stream: str,
        rows: Rows,
        *,
        publisher: str | None = None,
        sequence: int | None = None,
    ) -> Published:
        """Publish one batch. It is accepted or refused as a whole, and durable when this returns.

        `rows` is a list of dicts, an Arrow table or batch, or a DataFrame. Raises RowProblem, which
        names row and column.

        `publisher` and `sequence` identify the batch, so that the store takes it once. With them,
        publish a batch again after ConnectionFailed or Timeout. Without them, it is unknown
        whether it was stored. `publisher()` counts sequences for you.
        """
        identity = _publishing.identity(publisher, sequence)
        return await self._run(_publishing.publish(self._session, stream, rows, identity))

    async def patch(
        self,
        stream: str,
        rows: Iterable[Mapping[str, Any]],
        *,
        publisher: str | None = None,
        sequence: int | None = None,
    ) -> Published:
        """Set some columns of keys of a keyed stream, and keep the others as they are.

        Each of `rows` is a dict of the columns of the stream key and of those to set, the same in
        all. A key without a current row, or with one that you may not see, refuses the batch:
        NO_CURRENT_ROW. `publisher` and `sequence` are those of `publish`.
        """
        return await self.publish(stream, patches(rows), publisher=publisher, sequence=sequence)

    async def delete(
        self,
        stream: str,
        keys: Iterable[Mapping[str, Any]],
        *,
        publisher: str | None = None,
        sequence: int | None = None,
    ) -> Published:
        """Delete keys of a keyed stream, by one batch of rows that end the current ones.

        Each of `keys` is a dict of the columns of the stream key, and of the event time if the
        stream has one. `publisher` and `sequence` are those of `publish`.
        """
        return await self.publish(stream, deletes(keys), publisher=publisher, sequence=sequence)

    async def heartbeat(self, stream: str, instant: datetime) -> Published:
        """Move NOW of an event-time stream to `instant`, if that is later."""
        return await self._run(_publishing.heartbeat(self._session, stream, instant, None))

    def publisher(
        self, name: str, *, next_sequence: int = 1, lease: timedelta | None = None
    ) -> AsyncPublisher:
        """Return a publisher, which counts sequences and can publish many batches on one
        connection.

        A name belongs to the owner, and the store remembers its last sequence: for ever, or for
        `lease` after the last batch. `next_sequence` is the first one to use.
        """
        return AsyncPublisher(
            self._run, self._session, _publishing.make_numbering(name, next_sequence, lease)
        )

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
        """Return the answer of a registration, named by its handle or client key.

        `window` replaces the window of the query. `as_of` is an earlier instant to answer at, with
        the rows that were known then; `knowledge="today"` includes those that came later.

        The answer is at least as recent as `least_position`, by default everything this client has
        seen or written; None asks for no position. `wait_for_engine` waits for the engine instead
        of computing rows that it has not matched yet. `unrefreshed` ignores REFRESH. `latest` does
        not wait for slow streams: NOW is the greatest ts that any event-time stream of the query
        has reached. `timeout` is in seconds.

        Raises NotFound.
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
        timeout: float = STREAM_TIMEOUT_SECONDS,
    ) -> AsyncAnswerStream:
        """Return the answer of `invoke` as Arrow batches that are received while you iterate.

        Answers of any size fit. Use it in `async with`. `timeout` is for the whole transfer.
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
        first, messages = await self._run(
            _flows.begin_invoke(self._session, handle, request, timeout)
        )
        return AsyncAnswerStream(first, messages)

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
        """Return the answer of a query once, without registering it.

        Options are those of `invoke`. Raises QueryProblem, which points at the place in the text.
        """
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
        timeout: float = STREAM_TIMEOUT_SECONDS,
    ) -> AsyncAnswerStream:
        """Return the answer of `ask` as Arrow batches, as `invoke_stream` does."""
        request = ask_request(
            self._session, sql, parameters, as_of, knowledge, least_position, unrefreshed, latest
        )
        first, messages = await self._run(_flows.begin_answer(self._session, request, timeout))
        return AsyncAnswerStream(first, messages)

    async def explain(
        self, handle: HandleLike, *, window: str | None = None, timeout: float | None = None
    ) -> Explanation:
        """Explain how a registration is matched, what it shares, and where the time of an invoke
        goes.

        The registration is named by its handle or client key, and is invoked once to measure it.
        """
        return await self._run(_flows.explain(self._session, handle, window, timeout))

    async def explain_text(
        self,
        sql: str,
        *,
        parameters: Mapping[str, Scalar] | None = None,
        timeout: float | None = None,
    ) -> Explanation:
        """Explain a query that is not registered; it is answered once to measure it."""
        return await self._run(_flows.explain_text(self._session, sql, parameters, timeout))

    async def grants(self) -> list[Grant]:
        """Return the grants of the tenant. Only its administrators may call this."""
        return await self._run(_flows.grants(self._session))

    async def quotas(self) -> list[Quota]:
        """Return the quotas of the tenant and its owners. Only its administrators may call this."""
        return await self._run(_flows.quotas(self._session))

    async def set_quota(
        self, limits: Mapping[str, int], *, remove: Sequence[str] = (), owner: str = ""
    ) -> Quota:
        """Set limits of the tenant, or of one `owner` of it. Limits that are not named stay.

        `remove` names limits to remove. Return the quota as it is now.
        """
        return await self._run(_flows.set_quota(self._session, limits, remove, owner))

    async def publishers(
        self, *, owner: str = "", prefix: str = ""
    ) -> AsyncIterator[PublisherRecord]:
        """Yield the publishers whose names begin with `prefix`, page by page.

        They are the caller's own. Administrators of the tenant may name another `owner`; if it is
        empty they get those of all owners.
        """
        token = ""
        while True:
            flow = _flows.publishers_page(self._session, owner, prefix, token)
            page, token = await self._run(flow)
            for publisher in page:
                yield publisher
            if not token:
                return

    async def forget_publishers(self, names: Sequence[str], *, owner: str = "") -> None:
        """Forget publishers that are done, all of the names or none. Their sequences begin again
        with 1.

        If one of them repeats a batch afterwards, it is stored twice or refused.
        """
        await self._run(_flows.forget_publishers(self._session, names, owner))

    async def audit(self, *, all_tenants: bool = False) -> AsyncIterator[AuditRecord]:
        """Yield what was administered in the tenant, newest first, page by page.

        With `all_tenants`, which only operators may use, it is of every tenant.
        """
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
        """Return the state of the servers' clocks, after confirming the jumps with the numbers
        `confirm`.
        """
        return await self._run(_flows.clock(self._session, confirm, timeout))

    async def zones(self, *, renew: Sequence[str] = (), timeout: float | None = None) -> StoreZones:
        """Return the time zones that the store has rules of, after renewing the rules of some.

        They get those of the machine of the server that answers. Only operators may renew rules.
        """
        return await self._run(_flows.zones(self._session, renew, timeout))

    async def status(self, *, timeout: float | None = None) -> StoreStatus:
        """Return the state of the store: its limits, its engine, its clock, what is damaged."""
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
        """Create an access key for an owner of the client's tenant, or of another `tenant`.

        Return it with its secret, which is shown only this once. Only administrators of the tenant
        may call this, and operators for every tenant.
        """
        return await self._run(
            _flows.create_key(self._session, owner, roles, claims, expires, tenant)
        )

    async def access_keys(self, *, tenant: str | None = None) -> list[AccessKey]:
        """Return the access keys of the tenant, without their secrets."""
        return await self._run(_flows.keys(self._session, tenant))

    async def revoke_key(self, id: str, *, tenant: str | None = None) -> AccessKey:
        """Revoke an access key: within seconds every server refuses it, and ends its open
        watches.
        """
        return await self._run(_flows.revoke_key(self._session, id, tenant))

    async def owner(self) -> str:
        """Return the owner this client acts as. The store is asked if the client does not know."""
        return await self._run(_flows.own_name(self._session))

    @property
    def position(self) -> bytes | None:
        """The newest position seen; None before any. Set it to go on where another stopped."""
        return self._session.position

    @position.setter
    def position(self, position: bytes | None) -> None:
        """The newest position this client has seen, or None. Set it to continue where another
        client stopped.
        """
        self._session.position = position

    async def close(self) -> None:
        """Close the connection. Calls that are under way in other tasks fail."""
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
