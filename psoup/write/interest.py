"""Interest beyond the windows of registrations: a server tells the engine what somebody looked at.

The engine matches first what windows can reach. Where a call brings a longer window, or asks about
an instant long ago, the answer is computed here, and an event asks the engine to match the
predicate as far back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from datastem.instants import SINCE_EVER
from psoup.store import Interest, State
from psoup.store.interest import Interests
from psoup.store.state.asked import is_news
from psoup.write.appender import Appender, LogTail
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft


@dataclass(frozen=True, slots=True)
class Looked:
    """Somebody looked at the rows of a predicate with a ts of `since` or later; None: at all."""

    stream_id: int
    predicate_id: int
    since: int | None


@dataclass(frozen=True, slots=True)
class AskFor:
    """Asks for the rows of a predicate, where nobody has done so in the last hour or not as far."""

    looked: Looked
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> bool:
        """True where the event is new."""
        looked, state = self.looked, draft.state
        stream = state.streams[looked.stream_id]
        if stream.dropped or looked.predicate_id not in state.predicates:
            return False
        since = SINCE_EVER if looked.since is None else looked.since
        if not is_news(stream.asked, looked.predicate_id, since, draft.stamp):
            return False
        event = Interest(looked.stream_id, looked.predicate_id, looked.since)
        draft.append(stream.tenant, stream.owner, event)
        return True


class InterestKeeper:
    """Knows how far back the windows of registrations reach, and asks the engine for more.

    No answer waits for that.
    """

    def __init__(self, tail: LogTail, appender: Appender) -> None:
        self._tail = tail
        self._appender = appender
        self._state: State | None = None
        self._interests = Interests()

    @property
    def interests(self) -> Interests:
        """The interest in the streams of the tail's state, kept up with it."""
        state = self._tail.state
        if state is not self._state:
            self._state, self._interests = state, Interests()
        self._interests.refresh(state)
        return self._interests

    def beyond(self, looked: Iterable[Looked]) -> list[Looked]:
        """The looks at rows of registered predicates that no window reaches, widened so that a
        slightly longer one is none other."""
        state, interests = self._tail.state, self.interests
        found = []
        for one in looked:
            if one.predicate_id not in state.predicates:
                continue
            known = one.predicate_id, one.predicate_id + 1
            since = SINCE_EVER if one.since is None else one.since
            if since < interests.begin(state, one.stream_id, *known):
                wide = interests.widened(state, one.stream_id, one.since)
                found.append(Looked(one.stream_id, one.predicate_id, wide))
        return found

    def ask(self, looked: Iterable[Looked]) -> None:
        """Asks the engine for rows that no window reaches; one that is asked for already is not
        asked for again."""
        if self._appender.stopping:
            return
        state = self._tail.state
        for one in self.beyond(looked):
            since = SINCE_EVER if one.since is None else one.since
            asked = state.streams[one.stream_id].asked
            if is_news(asked, one.predicate_id, since, state.clock):
                self._append(AskFor(one))

    def _append(self, proposal: AskFor) -> asyncio.Future[bool]:
        future = self._appender.enqueue(proposal)
        # Nobody waits for it, so nobody wants to hear of its failure either.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future
