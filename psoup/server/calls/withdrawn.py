"""An item of a Sync whose caller may not read any more what its query names: the copy is emptied.

The client gets a whole answer without rows, once, and a token that says so. When reading is granted
again, that token is answered whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cached_property

from psoup.answers import Question
from psoup.answers.difference import Claim, Difference
from psoup.answers.difference.job import NO_DIGEST, LegMark, Mark, WholeReason
from psoup.answers.question import RegisteredQuery
from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.server.wire.copies import CopySubject, Signed, Unusable, reason_message
from psoup.server.wire.values import columns_message, from_instant, pattern_message
from psoup.store import State
from psoup.v1 import psoup_pb2 as pb


def is_readable(state: State, acting: Acting, question: Question) -> bool:
    """Tells whether the caller may read what the query of a registration names; also where the
    registration has ended, or has another query by now, which others tell."""
    source = question.source
    assert isinstance(source, RegisteredQuery)
    found = state.registrations.get(source.handle)
    if found is None or found.position != source.text:
        return True
    return acting.reads(state, found, question.query)


@dataclass
class WithdrawnTransfer:
    """An item that is emptied. It has what a Transfer has for those who watch it."""

    core: Core
    acting: Acting
    question: Question
    signed: Signed | Unusable | None
    token: bytes = b""
    found: Difference | None = None
    done: bool = False

    @cached_property
    def _subject(self) -> CopySubject:
        source = self.question.source
        assert isinstance(source, RegisteredQuery) and source.text is not None
        return CopySubject.withdrawn(source.handle, source.text)

    @cached_property
    def quiet(self) -> bool:
        """Whether the client knows already."""
        try:
            return isinstance(self.signed, Signed) and bool(self.signed.about(self._subject))
        except Unusable:
            return False

    async def parts(self) -> AsyncIterator[pb.SyncPart]:
        state = self.core.follower.state
        yield pb.SyncPart(begin=self._begin())
        mark = Mark(state.position, (LegMark(0),), None, None)
        self.token = self.core.tokens.write(self._subject, Claim(mark), self.acting.binding)
        self.done = True
        end = pb.SyncEnd(
            token=self.token,
            position=self.core.store.positions.encode(state.position),
            now=from_instant(self.core.follower.now),
            digest=NO_DIGEST,
        )
        yield pb.SyncPart(end=end)

    def __post_init__(self) -> None:
        # The registration may have ended when the parts are asked for.
        source, state = self.question.source, self.core.follower.state
        assert isinstance(source, RegisteredQuery)
        legs = state.registrations[source.handle].legs
        schemas = [state.streams[leg.stream_id].schema for leg in legs]
        self._schemas = {schema.name: schema for schema in schemas}

    def _begin(self) -> pb.SyncBegin:
        if self.quiet:
            return pb.SyncBegin()
        query = self.question.query
        return pb.SyncBegin(
            mode=pb.SYNC_MODE_WHOLE,
            reason=reason_message(WholeReason.PERMISSION),
            columns=columns_message(query.columns),
            pattern=pattern_message(query, self._schemas.__getitem__),
            digest_of=pb.DIGEST_OF_CHECKSUMS,
        )
