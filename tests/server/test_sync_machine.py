"""A state machine over Sync: publish, go away, come back to either server on a bad connection."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, rule

from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.v1 import psoup_pb2 as pb
from querystem.legs import Leg
from tests.oracle.copy import Copy, Values, runs_of
from tests.support.server.callers import new_call, sync_parts
from tests.support.server.sync_world import Asked, Question, World, machine_settings, questions

_BEGUN_ANEW = (
    pb.SYNC_REASON_TARGET_GONE,
    pb.SYNC_REASON_REPLACED,
    pb.SYNC_REASON_PERMISSION,
)


@dataclass
class Standing:
    handle: bytes
    asked: Asked
    key: str
    copy: Copy = field(default_factory=Copy)
    changes: bool = False


@dataclass(frozen=True)
class NaivelySeen:
    """The naive copy after an end."""

    copy: Copy

    @property
    def end(self) -> pb.SyncEnd:
        assert self.copy.end is not None
        return self.copy.end

    @property
    def position(self) -> bytes:
        return self.end.position

    @property
    def now(self) -> int | None:
        return self.copy.now

    @property
    def slides(self) -> bool:
        return self.copy.slides

    @property
    def good_until(self) -> int | None:
        good = self.end.good_until
        is_set = self.end.HasField("good_until")
        return good.seconds * 10**6 + good.nanos // 1000 if is_set else None

    def answer(self, now: int | None) -> list[Values]:
        return self.copy.answer(now)


class Recharge(World):
    standing = Bundle("standing")

    @rule(target=standing, question=questions)
    def register(self, question: Question) -> Standing:
        return self.standing_for(0, self.ask(question))

    @rule(server=st.integers(0, 1), subject=standing, question=questions)
    def replace(self, server: int, subject: Standing, question: Question) -> None:
        self.replaced(server, subject, self.ask(question))

    def standing_for(self, server: int, question: Asked) -> Standing:
        self.keys = getattr(self, "keys", 0) + 1
        request = pb.RegisterRequest(sql=question.text, client_key=f"k{self.keys}")
        registered, *_ = self.run(register(self.cores[server], new_call(), request))
        drawn = self.chance.random() < 0.5
        return Standing(registered.handles[0], question, request.client_key, changes=drawn)

    def replaced(self, server: int, standing: Standing, question: Asked) -> None:
        """What the client has is of no use any more, be it a copy or what was staged of one."""
        core = self.cores[server]
        request = pb.RegisterRequest(sql=question.text, client_key=standing.key, replace=True)
        registered, *_ = self.run(register(core, new_call(), request))
        assert registered.handles == [standing.handle]
        standing.asked = question
        # A server that has not read the event yet would rightly answer the query before.
        for server_core in self.cores:
            self.run(server_core.follower.catch_up())
        if not registered.replaced or not (standing.copy.resume or standing.copy.token):
            return
        first, *_ = self._parts(core, pb.SyncRequest(items=[self._item(standing)]), 1)
        assert first.begin.reason == pb.SYNC_REASON_REPLACED and not first.begin.continued
        assert first.begin.mode == pb.SYNC_MODE_WHOLE

    @rule(
        server=st.integers(0, 1),
        standings=st.lists(standing, min_size=1, max_size=3, unique_by=id),
        cut=st.integers(0, 12),
        budget=st.sampled_from((0, 0, 0, 1, 300, 2000)),
        arrow=st.booleans(),
        away=st.sampled_from((None, None, 0, 5, 100)),
        one_position=st.booleans(),
        lose_end=st.integers(0, 5),
    )
    def sync(
        self,
        server: int,
        standings: list[Standing],
        cut: int,
        budget: int,
        arrow: bool,
        away: int | None,
        one_position: bool,
        lose_end: int,
    ) -> None:
        request = pb.SyncRequest(
            items=[self._item(subject) for subject in standings],
            byte_budget=budget,
            encoding=pb.ENCODING_ARROW if arrow else pb.ENCODING_UNSPECIFIED,
            one_position=one_position,
            away=None if away is None else Duration(seconds=away),
        )
        parts = self._parts(self.cores[server], request, None if cut > 8 else cut)
        ended = set()
        for part in parts:
            subject = standings[part.item]
            self._note_clock(subject, part)
            subject.copy.take(part, lose_end=lose_end == 0)
            if part.HasField("end") and lose_end:
                ended.add(part.item)
                self._check(subject)
        for index, subject in enumerate(standings):
            if index not in ended:
                subject.copy.cut()
        if one_position and len(ended) == len(standings):
            ends = [subject.copy.end for subject in standings if subject.copy.end]
            assert len({end.position for end in ends}) == 1

    @rule(server=st.integers(0, 1), subject=standing)
    def recharge(self, server: int, subject: Standing) -> None:
        """Until it is complete, in as many calls as that takes."""
        for _ in range(1000):
            request = pb.SyncRequest(items=[self._item(subject)], byte_budget=800)
            parts = self._parts(self.cores[server], request, None)
            assert len(parts) > 1
            for part in parts:
                self._note_clock(subject, part)
                subject.copy.take(part)
            if parts[-1].HasField("end"):
                return self._check(subject)
        raise AssertionError("it never ends")

    @rule(server=st.integers(0, 1), subject=standing)
    def damage(self, server: int, subject: Standing) -> None:
        """One row breaks, is lost or made up; the client finds out and has it repaired."""
        copy = subject.copy
        if copy.end is None or not copy.rows or copy.resume:
            return
        damaged = copy.damage(self.chance)
        item = self._item(subject)
        if damaged == "damaged":
            assert len(copy.damaged()) == 1
            item.resend.CopyFrom(runs_of(copy.damaged()))
        else:
            assert not copy.sound()
            item.have.CopyFrom(runs_of(set(copy.rows)))
        for part in self._parts(self.cores[server], pb.SyncRequest(items=[item]), None):
            self._note_clock(subject, part)
            copy.take(part)
        self._check(subject)

    @rule(server=st.integers(0, 1), subject=standing)
    def nothing_new(self, server: int, subject: Standing) -> None:
        """A second sync right after a first has nothing to say, in few bytes."""
        self.run(self.cores[server].follower.catch_up())
        for _ in range(2):
            for part in self._parts(self.cores[server], self._request(subject), None):
                self._note_clock(subject, part)
                subject.copy.take(part)
        parts = self._parts(self.cores[server], self._request(subject), None)
        assert [part.WhichOneof("part") for part in parts] == ["begin", "end"]
        query = subject.asked.query
        more = 0 if isinstance(query.source, Leg) else 40 * len(query.legs)
        assert sum(part.ByteSize() + 5 for part in parts) <= 230 + more
        for part in parts:
            self._note_clock(subject, part)
            subject.copy.take(part)
        self._check(subject)

    # ---- checks

    def _note_clock(self, standing: Standing, part: pb.SyncPart) -> None:
        """A refresh point is found out when a target is chosen, and then kept."""
        is_kept = part.HasField("resume") and standing.copy.staged is None
        begun = part.HasField("begin") and not part.begin.continued and not standing.copy.resume
        is_restarted = part.begin.reason in _BEGUN_ANEW
        if is_kept or begun or is_restarted:
            standing.asked.clock = self.clock

    def _check(self, standing: Standing) -> None:
        copy = standing.copy
        assert copy.end is not None and copy.sound() and not copy.damaged()
        self.check(standing.asked, NaivelySeen(copy))

    # ---- means

    def _request(self, standing: Standing) -> pb.SyncRequest:
        return pb.SyncRequest(items=[self._item(standing)])

    def _item(self, standing: Standing) -> pb.SyncItem:
        return pb.SyncItem(
            handle=standing.handle,
            token=standing.copy.resume or standing.copy.token,
            window=standing.asked.window,
            base_rows=standing.asked.base_rows,
            changes=standing.changes,
        )

    def _parts(self, core: Core, request: pb.SyncRequest, most: int | None) -> list[pb.SyncPart]:
        return self.run(sync_parts(core, request, most))


TestRecharge = Recharge.TestCase
TestRecharge.settings = machine_settings(6, 30)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestForLong(Recharge.TestCase):  # type: ignore[misc, valid-type]
    """Thousands of runs."""

    settings = machine_settings(2000, 50)
