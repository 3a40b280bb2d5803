"""A state machine over several streams: whatever came before, an answer is the naive one."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, consumes, multiple, rule

from datastem.instants import SECOND
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.register import register
from psoup.server.core import Core
from psoup.v1 import psoup_pb2 as pb
from psoup.write.registrations import UnregisterOne
from querystem.language import QueryError
from tests.oracle.clocks import MixedClocks
from tests.oracle.several.chance import Seeded
from tests.oracle.several.windows import range_window
from tests.server.test_machine import _answer
from tests.support.lengths import short_first
from tests.support.server.callers import new_call
from tests.support.server.several_world import SEEDS, Mixed, SeveralAsked, SeveralWorld
from tests.support.server.sync_world import START, machine_settings


@dataclass(frozen=True)
class SeveralStanding:
    handle: bytes
    asked: SeveralAsked
    key: str


async def _answered(handler: Any, core: Core, request: Any) -> list[Any]:
    """Return the rows of an answer. The call is made when this runs, as the caller of then."""
    return await _answer(handler(core, new_call(), request))


class SeveralSoup(SeveralWorld):
    standing = Bundle("standing")

    @rule(target=standing, server=st.integers(0, 1), seed=SEEDS)
    def register(self, server: int, seed: int) -> MultipleResults[SeveralStanding]:
        standings = []
        for case in self.write(seed):
            self.keys = getattr(self, "keys", 0) + 1
            standings.append(self._registered(server, case, f"k{self.keys}", replace=False))
        return multiple(*[standing_ for standing_ in standings if standing_ is not None])

    @rule(target=standing, server=st.integers(0, 1), before=consumes(standing), seed=SEEDS)
    def replace(self, server: int, before: SeveralStanding, seed: int) -> SeveralStanding:
        replacement = self._registered(server, self.write(seed)[0], before.key, replace=True)
        assert replacement is None or replacement.handle == before.handle
        return replacement or before

    def _registered(
        self, server: int, case: SeveralAsked | Mixed, key: str, replace: bool
    ) -> SeveralStanding | None:
        """The registration; None where the store must refuse the text."""
        request = pb.RegisterRequest(sql=case.text, client_key=key, replace=replace)
        call = register(self.cores[server], new_call(), request)
        if isinstance(case, Mixed):
            with pytest.raises(QueryError):
                self.run(call)
            return None
        registered, *_ = self.run(call)
        return SeveralStanding(registered.handles[0], case, key)

    @rule(server=st.integers(0, 1), subject=consumes(standing))
    def unregister(self, server: int, subject: SeveralStanding) -> None:
        self.run(self.cores[server].appender.submit(UnregisterOne("main", subject.handle)))

    @rule(
        server=st.integers(0, 1), standings=st.lists(standing, min_size=1, max_size=8, unique_by=id)
    )
    def invoke(self, server: int, standings: list[SeveralStanding]) -> None:
        core = self.cores[server]
        self.run(core.follower.catch_up())
        for subject in standings:
            request = pb.InvokeRequest(handle=subject.handle, encoding=pb.ENCODING_ARROW)
            answer = self.run(_answered(invoke, core, request))
            subject.asked.check(self.history().ask(subject.asked.query).answer, answer)

    @rule(server=st.integers(0, 1), subject=standing, seed=SEEDS)
    def invoke_with_window(self, server: int, subject: SeveralStanding, seed: int) -> None:
        """A window that is brought is that of all legs without one of their own."""
        core, chance = self.cores[server], Seeded(Random(seed))
        window = range_window(chance, 30 * SECOND)
        self.run(core.follower.catch_up())
        query = subject.asked.query.with_window(window.window)
        request = pb.InvokeRequest(
            handle=subject.handle, window=window.text, encoding=pb.ENCODING_ARROW
        )
        try:
            expected = self.history().ask(query)
            refused = all(leg.has_own_window for leg in query.legs)
        except MixedClocks:
            refused = True
        if refused:
            with pytest.raises(QueryError):
                self.run(_answered(invoke, core, request))
            return
        answer = self.run(_answered(invoke, core, request))
        subject.asked.check(expected.answer, answer, window.text)

    @rule(
        server=st.integers(0, 1),
        subject=standing,
        seconds=st.integers(-5, 80),
        then=st.booleans(),
    )
    def invoke_as_of(self, server: int, subject: SeveralStanding, seconds: int, then: bool) -> None:
        """As of an instant that is past, by what was known then or is known today."""
        core, instant = self.cores[server], START + seconds * SECOND
        if instant > self.clock:
            return
        self.run(core.follower.catch_up())
        request = pb.InvokeRequest(
            handle=subject.handle,
            encoding=pb.ENCODING_ARROW,
            as_of=Timestamp(seconds=instant // SECOND),
            knowledge=pb.KNOWLEDGE_UNSPECIFIED if then else pb.KNOWLEDGE_TODAY,
        )
        answer = self.run(_answered(invoke, core, request))
        expected = self.history(as_of=instant, then=then).ask(subject.asked.query)
        subject.asked.check(expected.answer, answer, seconds, then)

    @rule(server=st.integers(0, 1), seed=SEEDS)
    def ask_several(self, server: int, seed: int) -> None:
        core = self.cores[server]
        self.run(core.follower.catch_up())
        for case in self.write(seed):
            if isinstance(case, Mixed):
                continue
            request = pb.AskRequest(sql=case.text, encoding=pb.ENCODING_ARROW)
            answer = self.run(_answered(ask, core, request))
            case.check(self.history().ask(case.query).answer, answer)

    def live(self, seed: int) -> None:
        """Two hundred texts in the life of one store, drawn without Hypothesis."""
        dice, standing = Random(seed), list[SeveralStanding]()
        self.open(seed, dice.randint(0, 3))
        try:
            for _ in range(50):
                server = dice.randrange(2)
                standing += self.register(server, dice.getrandbits(32)).values
                self.happens(dice)
                self.invoke(server, dice.sample(standing, min(8, len(standing))))
                for standing_ in dice.sample(standing, min(4, len(standing))):
                    self.invoke_with_window(server, standing_, dice.getrandbits(32))
                    self.invoke_as_of(server, standing_, dice.randint(-5, 80), dice.random() < 0.5)
        finally:
            self.teardown()


TestSeveralSoup = SeveralSoup.TestCase
TestSeveralSoup.settings = machine_settings(6, 25)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", short_first(range(20), 6))
def test_oracle_several_for_long(seed: int) -> None:
    SeveralSoup().live(seed)
