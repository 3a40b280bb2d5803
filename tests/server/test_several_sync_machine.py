"""A state machine over copies of combinations: a row that leaves one leg, by time, by an update of
its key or by newer rows, leaves every copy that joined it."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import MultipleResults, multiple, rule
from hypothesis.strategies import DataObject

from datastem.instants import SECOND
from querystem.query import Query
from tests.oracle.trees import World
from tests.server.test_sync_machine import Recharge, Standing
from tests.support.server.several_world import SeveralWorld
from tests.support.server.sync_world import Asked, Seen, machine_settings

_LATER = (0, 1, *(seconds * SECOND for seconds in (2, 5, 7, 31, 70)))


class SeveralRecharge(Recharge, SeveralWorld):
    @rule(target=Recharge.standing, server=st.integers(0, 1), data=st.data())
    def register(self, server: int, data: DataObject) -> Standing | MultipleResults[Standing]:
        asked = self._written(data)
        return multiple() if asked is None else self.standing_for(server, asked)

    @rule(server=st.integers(0, 1), one=Recharge.standing, data=st.data())
    def replace(self, server: int, one: Standing, data: DataObject) -> None:
        asked = self._written(data)
        if asked is not None:
            self.replaced(server, one, asked)

    def _written(self, data: DataObject) -> Asked | None:
        """A query over several streams; None where the store would refuse it."""
        written = self.write(data.draw)
        if written.query is None:
            return None
        return Asked(written.text, written.query, self.tables["kept"], "", base_rows=False)

    def check(self, asked: Asked, seen: Seen) -> None:
        """It is the naive answer at its position and NOW; and later, where it goes by the clock."""
        position = self.cores[0].store.positions.decode(seen.position)
        by_clock = self._goes_by_clock(asked.query)
        clock = seen.now if by_clock and seen.now is not None else asked.clock
        world = self.world(position, clock)
        assert seen.now == world.now(asked.query), asked.text
        assert seen.answer(seen.now) == world.answer(asked.query), asked.text
        if not by_clock or seen.now is None:
            return
        for later in (seen.now + step for step in _LATER):
            if seen.good_until is None or later < seen.good_until:
                shown = seen.answer(later if seen.slides else seen.now)
                assert shown == self.world(position, later).answer(asked.query), asked.text

    def _goes_by_clock(self, query: Query) -> bool:
        """Whether NOW of a query is the clock."""
        now = [World(self.world(None).streams, clock).now(query) for clock in (0, 1)]
        return now[0] != now[1]


TestSeveralRecharge = SeveralRecharge.TestCase
TestSeveralRecharge.settings = machine_settings(10, 20)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestSeveralRechargeForLong(SeveralRecharge.TestCase):  # type: ignore[misc, valid-type]
    """Hundreds of runs."""

    settings = machine_settings(600, 50)
