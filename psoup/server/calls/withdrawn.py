"""An item of a Sync whose caller may not read any more what its copy has: the copy is emptied.

The client gets a whole answer without rows, once, and a token that says so. When reading is granted
again, that token is answered whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from psoup.access.actions import reads_all, unreadable
from psoup.answers import Question
from psoup.answers.difference import Claim, Difference
from psoup.answers.difference.job import NO_DIGEST, LegMark, Mark, WholeReason
from psoup.answers.planning.question import RegisteredQuery
from psoup.server.core import Core
from psoup.server.permission import Acting
from psoup.server.wire.copies import CopySubject, Signed, Unusable, reason_message
from psoup.server.wire.values import columns_message, from_instant, pattern_message
from psoup.store import State
from psoup.v1 import psoup_pb2 as pb
from querystem.base_rows import combines

Token: TypeAlias = Signed | Unusable | None


def is_withdrawn(state: State, acting: Acting, question: Question, token: Token) -> bool:
    """Return whether a copy is to be emptied: because the caller may not read any more what its
    query names, or has base rows of streams that the caller may now read through views only, or, if
    it is made of several references to streams, not whole.

    Not if the registration has ended, or has another query by now: planning finds those. Raise
    StreamDropped if what its query names was dropped, and made again for the caller to read.
    """
    source = question.source
    assert isinstance(source, RegisteredQuery)
    registration = state.registrations.get(source.handle)
    if registration is None or registration.position != source.text:
        return False
    if not acting.reads(state, registration, question.query):
        return True
    if not question.base_rows or token is None or _is_emptied(token, _subject(question)):
        # There is no base row to take away; planning refuses those that may not be read.
        return False
    if combines(question.query):
        return not all(reads_all(state, id_, acting.principal) for id_ in registration.streams)
    return bool(unreadable(state, registration.streams, acting.principal))


def _subject(question: Question) -> CopySubject:
    source = question.source
    assert isinstance(source, RegisteredQuery) and source.text is not None
    return CopySubject.withdrawn(source.handle, source.text)


def _is_emptied(token: Token, subject: CopySubject) -> bool:
    """Return whether the client knows already that its copy is empty."""
    try:
        return isinstance(token, Signed) and bool(token.about(subject))
    except Unusable:
        return False


@dataclass
class WithdrawnTransfer:
    """An item that is emptied. It has the fields of a Transfer that a Watch reads."""

    core: Core
    acting: Acting
    question: Question
    signed: Token
    token: bytes = b""
    difference: Difference | None = None
    done: bool = False
    resumed: bool = False
    more: bool = False

    @cached_property
    def _subject(self) -> CopySubject:
        return _subject(self.question)

    @cached_property
    def quiet(self) -> bool:
        """Whether the client knows already."""
        return _is_emptied(self.signed, self._subject)

    async def parts(self) -> AsyncIterator[pb.SyncPart]:
        state = self.core.follower.state
        yield pb.SyncPart(begin=self._begin())
        mark = Mark(state.position, (LegMark(0),), None, None)
        self.token = self.core.tokens.write(self._subject, Claim(mark), self.acting.binding)
        self.done = True
        now = from_instant(self.core.follower.now)
        end = pb.SyncEnd(
            token=self.token,
            position=self.core.positions.encode(state.position),
            now=now,
            store_now=now,
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
