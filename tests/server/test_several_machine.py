"""A state machine over several streams: whatever came before, an answer is the naive one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, consumes, multiple, rule
from hypothesis.strategies import DataObject

from datastem.instants import SECOND
from psoup.server.calls.invoke import ask, invoke
from psoup.server.calls.register import register
from psoup.v1 import psoup_pb2 as pb
from psoup.write.registrations import UnregisterOne
from querystem.language import QueryError
from querystem.query import Query
from tests.oracle.clocks import MixedClocks
from tests.oracle.several.chance import Drawn
from tests.oracle.several.windows import range_window
from tests.oracle.trees import World
from tests.server.test_machine import _answer
from tests.support.server.several_world import SeveralAsked, SeveralWorld
from tests.support.server.sync_world import START, machine_settings


@dataclass(frozen=True)
class SeveralStanding:
    handle: bytes
    text: str
    query: Query
    key: str


class SeveralSoup(SeveralWorld):
    standing = Bundle("standing")

    @rule(target=standing, server=st.integers(0, 1), data=st.data())
    def register(
        self, server: int, data: DataObject
    ) -> SeveralStanding | MultipleResults[SeveralStanding]:
        self.keys = getattr(self, "keys", 0) + 1
        made = self._registered(server, self.write(data.draw), f"k{self.keys}", replace=False)
        return multiple() if made is None else made

    @rule(target=standing, server=st.integers(0, 1), before=consumes(standing), data=st.data())
    def replace(self, server: int, before: SeveralStanding, data: DataObject) -> SeveralStanding:
        made = self._registered(server, self.write(data.draw), before.key, replace=True)
        assert made is None or made.handle == before.handle
        return made or before

    def _registered(
        self, server: int, asked: SeveralAsked, key: str, replace: bool
    ) -> SeveralStanding | None:
        """The registration; None where the store must refuse the text."""
        request = pb.RegisterRequest(sql=asked.text, client_key=key, replace=replace)
        call = register(self.cores[server], request)
        if asked.query is None:
            with pytest.raises(QueryError):
                self.run(call)
            return None
        registered, *_ = self.run(call)
        return SeveralStanding(registered.handles[0], asked.text, asked.query, key)

    @rule(server=st.integers(0, 1), gone=consumes(standing))
    def unregister(self, server: int, gone: SeveralStanding) -> None:
        self.run(self.cores[server].appender.submit(UnregisterOne("main", gone.handle)))

    @rule(server=st.integers(0, 1), asked=standing)
    def invoke(self, server: int, asked: SeveralStanding) -> None:
        core = self.cores[server]
        self.run(core.follower.catch_up())
        request = pb.InvokeRequest(handle=asked.handle, encoding=pb.ENCODING_ARROW)
        self._compare(asked, self.run(_answer(invoke(core, request, None))), self.world(None))

    @rule(server=st.integers(0, 1), asked=standing, data=st.data())
    def invoke_with_window(self, server: int, asked: SeveralStanding, data: DataObject) -> None:
        """A window that is brought is that of all legs without one of their own."""
        core, window = self.cores[server], range_window(Drawn(data.draw), 30 * SECOND)
        self.run(core.follower.catch_up())
        query, world = asked.query.with_window(window.window), self.world(None)
        request = pb.InvokeRequest(
            handle=asked.handle, window=window.text, encoding=pb.ENCODING_ARROW
        )
        try:
            world.now(query)
            refused = all(leg.own for leg in query.legs)
        except MixedClocks:
            refused = True
        if refused:
            with pytest.raises(QueryError):
                self.run(_answer(invoke(core, request, None)))
            return
        answer = self.run(_answer(invoke(core, request, None)))
        assert answer == world.answer(query), (asked.text, window.text)

    @rule(
        server=st.integers(0, 1),
        asked=standing,
        seconds=st.integers(-5, 80),
        then=st.booleans(),
    )
    def invoke_as_of(self, server: int, asked: SeveralStanding, seconds: int, then: bool) -> None:
        """As of an instant that is past, by what was known then or is known today."""
        core, instant = self.cores[server], START + seconds * SECOND
        if instant > self.clock:
            return
        self.run(core.follower.catch_up())
        request = pb.InvokeRequest(
            handle=asked.handle,
            encoding=pb.ENCODING_ARROW,
            as_of=Timestamp(seconds=instant // SECOND),
            knowledge=pb.KNOWLEDGE_UNSPECIFIED if then else pb.KNOWLEDGE_TODAY,
        )
        answer = self.run(_answer(invoke(core, request, None)))
        self._compare(asked, answer, self.world(None, as_of=instant, then=then))

    @rule(server=st.integers(0, 1), data=st.data())
    def ask_several(self, server: int, data: DataObject) -> None:
        asked = self.write(data.draw)
        if asked.query is None:
            return
        core = self.cores[server]
        self.run(core.follower.catch_up())
        request = pb.AskRequest(sql=asked.text, encoding=pb.ENCODING_ARROW)
        answer = self.run(_answer(ask(core, request, None)))
        assert answer == self.world(None).answer(asked.query), asked.text

    def _compare(
        self, asked: SeveralStanding, answer: list[tuple[object, ...]], world: World
    ) -> None:
        assert answer == world.answer(asked.query), asked.text


TestSeveralSoup = SeveralSoup.TestCase
TestSeveralSoup.settings = machine_settings(12, 25)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestSeveralForLong(SeveralSoup.TestCase):  # type: ignore[misc, valid-type]
    """Hundreds of runs."""

    settings = machine_settings(400, 50)
