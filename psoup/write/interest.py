"""Requests of servers that the engine match older rows than windows of registrations reach.

The engine first matches the rows that windows can reach. A call may bring a longer window, or ask
about an instant long ago. The server computes that answer itself, and an event of the log requests
that the engine match the predicate as far back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from datastem.instants import SINCE_EVER
from psoup.store import Interest, State
from psoup.store.interest import Interests
from psoup.store.state.interest_requests import is_new_request
from psoup.write.appender import Appender, LogTail
from psoup.write.draft import HEADER_BYTES, Actor, Chain, CommitDraft


@dataclass(frozen=True, slots=True)
class Lookback:
    """Rows of a predicate that an answer needed: those with a ts of `since` or later, or all rows
    if `since` is None."""

    stream_id: int
    predicate_id: int
    since: int | None

    @property
    def first_ts(self) -> int:
        """The least ts of the requested rows."""
        return SINCE_EVER if self.since is None else self.since


@dataclass(frozen=True, slots=True)
class RequestInterest:
    """Proposal of a request. It appends nothing if an equal or longer request is recent."""

    request: Lookback
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> bool:
        """Return True if the event was appended."""
        request, state = self.request, draft.state
        stream = state.streams[request.stream_id]
        if stream.dropped or request.predicate_id not in state.predicates:
            return False
        # Checked here again: since the caller's check, another server may have made the request.
        if not is_new_request(
            stream.interest_requests, request.predicate_id, request.first_ts, draft.stamp
        ):
            return False
        event = Interest(request.stream_id, request.predicate_id, request.since)
        draft.append(stream.tenant, stream.owner, event)
        return True


class InterestKeeper:
    """Keeps how far back the windows of registrations reach, and requests older rows.

    No answer waits for a request.
    """

    def __init__(self, tail: LogTail, appender: Appender) -> None:
        self._tail = tail
        self._appender = appender
        self._state: State | None = None
        self._interests = Interests()

    @property
    def interests(self) -> Interests:
        """The interest in the streams, up to date with the tail's state."""
        state = self._tail.state
        if state is not self._state:
            self._state, self._interests = state, Interests()
        self._interests.refresh(state)
        return self._interests

    def uncovered(self, requests: Iterable[Lookback]) -> list[Lookback]:
        """Return the requests for registered predicates that no window covers, rounded so that
        similar ones coincide."""
        state, interests = self._tail.state, self.interests
        uncovered = []
        for request in requests:
            stream_id, predicate_id = request.stream_id, request.predicate_id
            if predicate_id not in state.predicates:
                continue
            if request.first_ts < interests.begin(state, stream_id, predicate_id, predicate_id + 1):
                since = interests.widened(state, stream_id, request.since)
                uncovered.append(Lookback(stream_id, predicate_id, since))
        return uncovered

    def request(self, requests: Iterable[Lookback], actor: Actor | None = None) -> None:
        """Append, for `actor`, the requests that no window covers and that were not made
        recently."""
        if self._appender.stopping:
            return
        state = self._tail.state
        for request in self.uncovered(requests):
            recent = state.streams[request.stream_id].interest_requests
            if is_new_request(recent, request.predicate_id, request.first_ts, state.clock):
                self._append(RequestInterest(request), actor)

    def _append(self, proposal: RequestInterest, actor: Actor | None) -> asyncio.Future[bool]:
        future = self._appender.enqueue(proposal, actor)
        # No caller awaits the future: take its exception, or asyncio logs it as never retrieved.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future
