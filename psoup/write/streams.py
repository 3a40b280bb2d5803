"""Proposals that create and drop streams, and that publish batches to them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from datastem.codec import count_earlier
from datastem.instants import MIN_INSTANT, format_instant
from datastem.schema import StreamSchema
from psoup.errors import ClockUnconfirmed, SequenceGap, SequenceReused, StreamExists
from psoup.lookup import find_stream
from psoup.store import (
    AcceptedBatch,
    Data,
    Position,
    State,
    StreamCreated,
    StreamEnded,
    StreamState,
    kind_of_view,
)
from psoup.write.conditions import Conditions
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft, Stale
from psoup.write.drops import Ended, check_policies, end_with
from psoup.write.erased_keys import UNCHECKED, KeyCheck, check_keys, check_payload
from psoup.write.ids import new_id
from psoup.write.patches import Completion, Outdated
from psoup.write.quotas import check_objects


@dataclass(frozen=True, slots=True)
class Define:
    """Proposal to create a stream."""

    tenant: str
    owner: str
    schema: StreamSchema
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def check(self, state: State) -> None:
        """Raise what the proposal is refused with."""
        check_free(state, self.tenant, self.schema.name)
        check_objects(state, "streams", self.tenant, self.owner)

    def propose(self, draft: CommitDraft) -> tuple[StreamState, Position]:
        self.check(draft.state)
        stream_id = new_id(draft.state)
        position = draft.append(self.tenant, self.owner, StreamCreated(stream_id, self.schema))
        return draft.state.streams[stream_id], position


def check_free(state: State, tenant: str, name: str) -> None:
    """Raise StreamExists if a stream, a view or a function has the name."""
    stream, view = state.find_stream(tenant, name), state.find_view(tenant, name)
    if stream is not None or view is not None:
        kind = "stream" if view is None else kind_of_view(view.definition)
        raise StreamExists(
            f"there is a {kind} {name} already", hint="drop it first, or choose another name"
        )


@dataclass(frozen=True, slots=True)
class Drop:
    """Proposal to drop the live stream of a name, and with `cascade` first the views over it.

    A stream with row policies is dropped only for a caller who `administers` the tenant.
    """

    tenant: str
    owner: str
    name: str
    cascade: bool = False
    administers: bool = False
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> tuple[StreamState, Position, Ended]:
        stream = find_stream(draft.state, self.tenant, self.name)
        check_policies(draft.state, stream, self.administers)
        ended = end_with(draft, stream.id, self.name, self.tenant, self.owner, self.cascade)
        return stream, draft.append(self.tenant, self.owner, StreamEnded(stream.id)), ended


@dataclass(frozen=True, slots=True)
class Published:
    """The outcome of a publish. `duplicate` is True if the batch was accepted before.

    An `unverified` duplicate is known by its sequence alone: the first batch's digest is no longer
    cached, so its rows may differ.
    """

    position: Position
    rows: int
    first_row_id: int
    duplicate: bool
    unverified: bool = False


@dataclass(frozen=True, slots=True)
class PublishBatch:
    """Proposal of a batch that was validated for the stream `stream_id`, or of a heartbeat without
    a payload.

    `min_ts` and `max_ts` are None if ts is the stamp of arrival. A repeat has the `request_digest`
    of the first. `mark` and `lease` are the publisher's, and no part of the batch's identity: a
    repeat with others is a repeat. Rows with an `_expected` are the batch's `conditions`. `erased`
    says whether its keys were erased, as far as was known when it was validated.

    A batch with patches has the batch that was `sent`; its own rows are those of the `completion`.
    """

    tenant: str
    owner: str
    stream_id: int
    publisher: str
    sequence: int
    rows: int
    min_ts: int | None
    max_ts: int | None
    digest: bytes
    request_digest: bytes
    payload: bytes
    chain: Chain | None = None
    mark: bytes = b""
    lease: int | None = None
    conditions: Conditions | None = None
    erased: KeyCheck = UNCHECKED
    sent: pa.RecordBatch | None = None
    completion: Completion | None = None

    @property
    def checked_from(self) -> int | None:
        """The least id of the rows that the batch has to be checked with; None if it is not."""
        checks = [check.high for check in (self.conditions, self.completion) if check is not None]
        return min(checks, default=None)

    @property
    def nbytes(self) -> int:
        return len(self.payload) + len(self.mark) + HEADER_BYTES

    def propose(self, draft: CommitDraft) -> Published:
        # First of all: a repeat gets its first outcome, even if the stream was dropped since.
        repeated = self._repeated(draft) if self.publisher else None
        if repeated is not None:
            return repeated
        stream = draft.state.streams[self.stream_id]
        if stream.dropped:
            raise Stale
        self._check_erased(draft, stream)
        self._check_ahead(draft, stream)
        if self.checked_from is not None:
            newest = draft.newest_rows(self.stream_id)
            if self.conditions is not None:
                self.conditions.check(self.stream_id, stream.schema, newest)
            if self.completion is not None:
                self.completion.check(stream.schema, newest)
        if self.sent is not None and self.completion is None:
            raise Outdated
        # Streams without ORDERED BY have the commit's stamp as ts.
        arrival = draft.stamp if self.rows and self.min_ts is None else None
        event = Data(
            stream_id=self.stream_id,
            publisher=self.publisher,
            sequence=self.sequence,
            rows=self.rows,
            first_row_id=stream.high,
            min_ts=self.min_ts if arrival is None else arrival,
            max_ts=self.max_ts if arrival is None else arrival,
            before=stream.reached,
            reached=self._reached(draft, stream, arrival),
            digest=self.digest,
            request_digest=self.request_digest,
            payload=self.payload,
            mark=self.mark or None,
            lease=self.lease,
            late_rows=self._late_rows(stream),
        )
        position = draft.append(self.tenant, self.owner, event)
        return Published(position, self.rows, stream.high, False)

    def _reached(self, draft: CommitDraft, stream: StreamState, arrival: int | None) -> int | None:
        """Return how far the batch takes its stream: late rows don't set it back."""
        instants = [arrival, stream.reached]
        if self.max_ts is not None:
            slack = stream.schema.slack if self.rows else 0
            instant = max(self.max_ts - slack, MIN_INSTANT)
            instants.append(stream.schema.limited(instant, draft.vouched))
        return max((instant for instant in instants if instant is not None), default=None)

    def _late_rows(self, stream: StreamState) -> int:
        """Return how many rows have a ts that NOW of the stream has passed."""
        schema, now = stream.schema, stream.reached
        if schema.now_is_clock or self.min_ts is None or now is None or self.min_ts >= now:
            return 0
        return count_earlier(self.payload, schema, now)

    def _check_erased(self, draft: CommitDraft, stream: StreamState) -> None:
        """Raise KeyErased for a row whose key was erased lately."""
        erasures = draft.state.erased(stream.id)
        check = self.erased
        if self.rows and check.seen != len(erasures.records):
            # An erasure came after the batch was validated: that happens to few batches.
            if self.sent is not None:
                check = check_keys(self.sent, stream.schema, erasures, draft.stamp)
            else:
                check = check_payload(self.payload, stream.schema, erasures, draft.stamp)
        if check.refusal is not None:
            raise check.refusal

    def _check_ahead(self, draft: CommitDraft, stream: StreamState) -> None:
        """Raise ClockUnconfirmed if a ts is ahead of the confirmed stamps.

        Rows ahead even of this commit's stamp were refused when the batch was validated. The
        remaining ones may be right, so the error asks the publisher to send them again later.
        """
        limit = draft.vouched + stream.schema.ahead
        if stream.schema.ts_is_stamp or self.max_ts is None or self.max_ts <= limit:
            return
        raise ClockUnconfirmed(
            f"ts {format_instant(self.max_ts)} is more than AHEAD past the confirmed time, "
            f"{format_instant(draft.vouched)}: the clock of the store's servers jumped forward, "
            "and that is not confirmed yet",
            field=stream.schema.labelled.ordered_by or "",
            expected=f"at most {format_instant(limit)}",
            got=format_instant(self.max_ts),
            hint="look at `psoup clock`, confirm the jump if it is right, and send this again",
        )

    def _repeated(self, draft: CommitDraft) -> Published | None:
        """Return the outcome of a batch whose sequence is not the next one; None if it is.

        Raise SequenceGap, SequenceReused, or QuotaExceeded for one publisher too many.
        """
        publisher = self.tenant, self.owner, self.publisher
        last = draft.state.publishers.get(publisher)
        reached = last.sequence if last else 0
        if self.sequence == reached + 1:
            if last is None:
                check_objects(draft.state, "publishers", self.tenant, self.owner)
            return None
        if self.sequence > reached or last is None:
            raise SequenceGap(
                f"sequence {self.sequence} of publisher {self.publisher} can't follow {reached}",
                expected=str(reached + 1),
                got=str(self.sequence),
                hint=f"send sequence {reached + 1} next",
            )
        old = draft.batch(publisher, self.sequence)
        if old is None:
            return Published(last.position, self.rows, -1, duplicate=True, unverified=True)
        return self._same(old)

    def _same(self, old: AcceptedBatch) -> Published:
        if old.request_digest != self.request_digest:
            raise SequenceReused(
                f"sequence {self.sequence} of publisher {self.publisher} was used for other rows",
                expected=f"the rows of digest {old.request_digest.hex()}",
                got=f"rows of digest {self.request_digest.hex()}",
                hint="send the same rows again, or use the next sequence",
            )
        return Published(old.position, old.rows, old.first_row_id, True)
