"""One call: who makes it, until when, and what the server has set aside for it.

Admission makes a `Call` before it reads a message, and every handler gets it as `(core, call,
request)`. Nothing about a caller is ambient: work in a thread or a task gets the call, or values of
it, as an argument.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa

from datastem.accept import Limits
from datastem.schema import StreamSchema
from psoup.access.principal import Principal
from psoup.server.call_trace import CallTrace
from psoup.server.permission import Acting
from psoup.server.sharing.precedence import MessageTurn
from psoup.server.sharing.room import Hold
from psoup.server.wire.arrow import Buffer, Encode
from psoup.store import Registration
from psoup.write.draft import Actor

_TICKETS = count(1)


@dataclass(frozen=True, slots=True)
class RowsForm:
    """The form in which another door than gRPC wants the rows of an answer, and how many at most.
    `is_quick` says that rows are encoded about as quickly as in Arrow."""

    encode: Encode
    max_rows: int | None = None
    is_quick: bool = False


@dataclass(frozen=True, slots=True)
class BatchForm:
    """The form in which another door than gRPC brings the rows of a batch, in place of Arrow, and
    how many bytes a byte of it takes while it is read. `read` raises RowError."""

    read: Callable[[Buffer, StreamSchema, Limits], pa.Table]
    memory_factor: int


class Call:
    """A call of an identified caller. For one event loop.

    `deadline` is when the client stops waiting, on the monotonic clock, or None. `tenant` is the
    one that work is charged to. `ticket` orders the calls of a tenant. `hold` and `turn` are those
    of the message at hand, and `arrow` is its Arrow batch if that was left unparsed; the messages
    of a call are handled one after the other. `registration` is the one that its work is counted
    for at present, or None. `queued_seconds` is how long it waited for turns and memory.
    `row_count` are the rows of its answer or batches, `computed_rows` those computed on the spot,
    `byte_count` the bytes of its messages both ways.
    `answer_form` and `batch_form` are None for messages of the wire.
    """

    def __init__(self, principal: Principal, peer: str = "", seconds: float | None = None) -> None:
        """`seconds` is how long the client waits."""
        self.principal = principal
        self.peer = peer
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.tenant = principal.tenant
        self.ticket = next(_TICKETS)
        self.hold: Hold | None = None
        self.turn: MessageTurn | None = None
        self.arrow: memoryview | None = None
        self.registration: Registration | None = None
        self.answer_form: RowsForm | None = None
        self.batch_form: BatchForm | None = None
        self.queued_seconds = 0.0
        self.row_count = 0
        self.computed_rows = 0
        self.byte_count = 0
        self.trace: CallTrace | None = None

    @contextmanager
    def queuing(self) -> Iterator[None]:
        """Count the time inside as waiting for a turn or for memory."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.queued_seconds += time.monotonic() - began

    @property
    def owner(self) -> str:
        """The owner that the caller is, whatever owner the message names."""
        return self.principal.owner

    @property
    def shown_tenant(self) -> str:
        """The tenant that the caller has shown to belong to; empty without authentication."""
        return "" if self.principal.anyone else self.principal.tenant

    @property
    def actor(self) -> Actor | None:
        """The caller as the log names them; None without authentication."""
        return self.principal.actor

    @property
    def seconds_left(self) -> float | None:
        """How long the client still waits; None if it waits for ever."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def acting(self, request: Any) -> Acting:
        """Return the tenant and owner that a message acts for, and charge its work to that tenant.
        Raise PermissionDenied, BadRequest."""
        acting = Acting.of(self.principal, request)
        self.tenant = acting.tenant
        return acting

    def works_for(self, registration: Registration | None) -> None:
        """Count the work that follows for a registration, or for none."""
        self.registration = registration

    def renew_ticket(self) -> None:
        """Take a place behind the other calls of the tenant."""
        self.ticket = next(_TICKETS)

    def end_turn(self) -> None:
        """Note that the call waits for something else than work, so it does not crowd."""
        if self.turn is not None:
            self.turn.end()

    def end_long_turn(self) -> None:
        """Note that the call sends its answer: a client that takes long to read does not crowd."""
        if self.turn is not None and not self.turn.is_young:
            self.turn.end()

    def batch_of(self, request: Any) -> Buffer:
        """Return the Arrow batch of the message at hand, without a copy if it was left unparsed."""
        return request.arrow if self.arrow is None else self.arrow
