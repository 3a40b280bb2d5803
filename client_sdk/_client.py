"""The client for programs that wait."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pyarrow as pa

from client_sdk import _flows, _publishing
from client_sdk._credentials import Credentials
from client_sdk._flows import SEEN, Knowledge, Seen, ask_request, invoke_request
from client_sdk._grpc.drivers import drive
from client_sdk._grpc.effects import Flow, Retry
from client_sdk._grpc.transports import GrpcTransport, Transport
from client_sdk._publishing import Publisher
from client_sdk._session import DEFAULT_TARGET, MEBIBYTE, Closing, HandleLike, Session, with_port
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

DEFAULT_TIMEOUT = 60.0
# Whoever iterates over an answer sets the pace, so it gets the longest a request may live.
STREAM_TIMEOUT = 1800.0


class Client(Closing):
    """A client talks to one store, from several threads if need be. `target` is a host, or
    host:port.

    `credentials` say how to know the store and who calls. `tenant` and `owner` are then those that
    the credentials stand for, and "main" without any, unless they are named.

    `timeout` is the deadline in seconds of each verb as a whole, retries included. What can be sent
    twice without harm (reads, keyed registrations, numbered publishes) is sent again with growing
    pauses while the server is away; anything else fails at once.

    Reads include this client's own writes: it remembers the newest position it has seen, in
    `position`, and asks for at least that. The position can be kept and given to another client.
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
        transport: Transport | None = None,
    ) -> None:
        self._session = Session(
            tenant or "", owner or "", timeout, retry or Retry(), max_message_bytes
        )
        self._transport = transport or GrpcTransport(
            with_port(target), max_message_bytes, credentials
        )

    def define(self, sql: str) -> Definition:
        """Runs one statement that creates, drops, grants or revokes."""
        return self._run(_flows.define(self._session, sql))

    def streams(self) -> list[Stream]:
        return self._run(_flows.streams(self._session))

    def views(self) -> list[View]:
        return self._run(_flows.views(self._session))

    def stream(self, name: str) -> Stream:
        return self._run(_flows.stream(self._session, name))

    def register(
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
        return self._run(_flows.register(self._session, sql, key, parameters, lease, replace))

    def register_many(
        self, sql: str, table: Any, *, lease: timedelta | None = None, replace: bool = False
    ) -> RegisteredMany:
        """Registers one text once for each row of a table of its `:name` values; all rows or none.

        The table is a list of dicts, Arrow or pandas, and may have a column `client_key`; with
        `replace` keys that have other queries get these.
        """
        return self._run(_flows.register_many(self._session, sql, table, lease, replace))

    def unregister(self, handle: HandleLike) -> None:
        self._run(_flows.unregister(self._session, handle))

    def registrations(
        self, *, owner: str | None = None, page_size: int = 0
    ) -> Iterator[Registration]:
        """Gives the registrations of `owner` (None: of all), page by page as you iterate."""
        token = ""
        while True:
            page, token = self._run(
                _flows.registrations_page(self._session, owner or "", page_size, token)
            )
            yield from page
            if not token:
                return

    def registration(self, handle: HandleLike) -> Registration:
        return self._run(_flows.registration(self._session, handle))

    def publish(
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
        return self._run(_publishing.publish(self._session, stream, rows, numbered))

    def delete(
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
        return self.publish(stream, deletes(keys), publisher=publisher, sequence=sequence)

    def heartbeat(self, stream: str, instant: datetime) -> Published:
        """Moves NOW of an event-time stream to `instant`, if that is later."""
        return self._run(_publishing.heartbeat(self._session, stream, instant, None))

    def publisher(self, name: str, *, next_sequence: int = 1) -> Publisher:
        """Makes a publisher, which counts sequences and publishes many batches on one line."""
        return Publisher(self._run, self._session, _publishing.numbering(name, next_sequence))

    def invoke(
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
        return self._run(_flows.invoke(self._session, handle, request, timeout))

    def invoke_stream(
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
    ) -> AnswerStream:
        """Gives the answer of `invoke` as Arrow batches, as they come: size is no limit. Use it in
        `with`.
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
        first, rest = self._run(_flows.begin_invoke(self._session, handle, request, timeout))
        return AnswerStream(first, rest)

    def ask(
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
        return self._run(_flows.answer(self._session, request, timeout))

    def ask_stream(
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
    ) -> AnswerStream:
        """Gives the answer of `ask` as Arrow batches, as `invoke_stream` does."""
        request = ask_request(
            self._session, sql, parameters, as_of, knowledge, least_position, unrefreshed, latest
        )
        first, rest = self._run(_flows.begin_answer(self._session, request, timeout))
        return AnswerStream(first, rest)

    def explain(
        self, handle: HandleLike, *, window: str | None = None, timeout: float | None = None
    ) -> Explanation:
        """Tells how a registration is matched, what it shares, and where the time of an invoke
        goes.
        """
        return self._run(_flows.explain(self._session, handle, window, timeout))

    def grants(self) -> list[Grant]:
        """The grants of the tenant, for those who administer it."""
        return self._run(_flows.grants(self._session))

    def quotas(self) -> list[Quota]:
        """The quotas of the tenant and its owners, for those who administer it."""
        return self._run(_flows.quotas(self._session))

    def set_quota(
        self, limits: Mapping[str, int], *, remove: Sequence[str] = (), owner: str = ""
    ) -> Quota:
        """Sets limits of the tenant, or of an owner of it; those that are not named stay."""
        return self._run(_flows.set_quota(self._session, limits, remove, owner))

    def publishers(self, *, owner: str = "", prefix: str = "") -> Iterator[PublisherRecord]:
        """List publishers whose names begin with `prefix`, page by page: the caller's own, or those
        of `owner` (empty: of all owners) for those who administer the tenant."""
        token = ""
        while True:
            flow = _flows.publishers_page(self._session, owner, prefix, token)
            page, token = self._run(flow)
            yield from page
            if not token:
                return

    def forget_publishers(self, names: Sequence[str], *, owner: str = "") -> None:
        """Forget publishers that are done, all of the names or none: their sequences begin again
        with 1. A batch that one of them repeats afterwards is stored twice, or refused.
        """
        self._run(_flows.forget_publishers(self._session, names, owner))

    def audit(self, *, all_tenants: bool = False) -> Iterator[AuditRecord]:
        """Lists what was administered, newest first, page by page, in the tenant; for operators in
        all of them with `all_tenants`."""
        token = ""
        tenant = "" if all_tenants else self._run(_flows.own_tenant(self._session))
        while True:
            page = _flows.audit_page(self._session, tenant, token)
            records, token = self._run(page)
            yield from records
            if not token:
                return

    def clock(self, *, confirm: Sequence[int] = (), timeout: float | None = None) -> StoreClock:
        """Tells what is known of the servers' clocks; first confirms jumps with these numbers."""
        return self._run(_flows.clock(self._session, confirm, timeout))

    def status(self, *, timeout: float | None = None) -> StoreStatus:
        return self._run(_flows.status(self._session, timeout))

    def create_key(
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
        return self._run(_flows.create_key(self._session, owner, roles, claims, expires, tenant))

    def access_keys(self, *, tenant: str | None = None) -> list[AccessKey]:
        """Gives the static keys of the tenant, without their secrets."""
        return self._run(_flows.keys(self._session, tenant))

    def revoke_key(self, id: str, *, tenant: str | None = None) -> AccessKey:
        """Ends a static key: within seconds every server refuses it, and ends open watches."""
        return self._run(_flows.revoke_key(self._session, id, tenant))

    def owner(self) -> str:
        """Gives the owner this client acts as, for which it asks the store where it must."""
        return self._run(_flows.own_name(self._session))

    @property
    def position(self) -> bytes | None:
        """The newest position seen; None before any. Set it to go on where another stopped."""
        return self._session.position

    @position.setter
    def position(self, position: bytes | None) -> None:
        self._session.position = position

    def close(self) -> None:
        self._transport.close()

    def _run(self, flow: Flow[T]) -> T:
        return drive(flow, self._transport)


class AnswerStream(Closing):
    """An answer under way has its `header`, and gives Arrow batches as you iterate.

    The batches together are the answer; an answer that ends short raises ServerError. Closing it
    early is fine and ends the transfer.
    """

    def __init__(
        self, first: pb.InvokeResponse, rest: Generator[pb.InvokeResponse, None, None]
    ) -> None:
        self._reader = AnswerReader()
        self._reader.feed(first)
        self._rest = rest
        self.header: AnswerHeader = self._reader.header

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for message in self._rest:
            yield from self._reader.feed(message)
        self._reader.finish()

    def close(self) -> None:
        self._rest.close()
