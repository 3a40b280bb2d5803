"""A state machine over copies of combinations: a row that leaves one leg, by time, by an update of
its key or by newer rows, leaves every copy that joined it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import MultipleResults, multiple, rule

from datastem.instants import SECOND
from tests.server.test_sync_machine import Recharge, Standing
from tests.support.lengths import short_first
from tests.support.server.several_world import SEEDS, SeveralAsked, SeveralWorld
from tests.support.server.sync_world import Asked, Seen, machine_settings

_LATER = (0, 1, *(seconds * SECOND for seconds in (2, 5, 7, 31, 70)))


@dataclass
class _AskedSeveral(Asked):
    written: SeveralAsked | None = None


class SeveralRecharge(Recharge, SeveralWorld):
    @rule(target=Recharge.standing, server=st.integers(0, 1), seed=SEEDS)
    def register(self, server: int, seed: int) -> MultipleResults[Standing]:
        return multiple(*[self.standing_for(server, case) for case in self._asked(seed)])

    @rule(server=st.integers(0, 1), standing=Recharge.standing, seed=SEEDS)
    def replace(self, server: int, standing: Standing, seed: int) -> None:
        for case in self._asked(seed)[:1]:
            self.replaced(server, standing, case)

    def _asked(self, seed: int) -> list[_AskedSeveral]:
        """Queries over several streams that the store accepts."""
        return [
            _AskedSeveral(case.text, case.query, self.tables["kept"], "", False, written=case)
            for case in self.write(seed)
            if isinstance(case, SeveralAsked)
        ]

    @rule(
        server=st.integers(0, 1),
        standings=st.lists(Recharge.standing, min_size=1, max_size=12, unique_by=id),
    )
    def recharge_some(self, server: int, standings: list[Standing]) -> None:
        for standing in standings:
            self.recharge(server, standing)

    def check(self, question: Asked, copy: Seen) -> None:
        """It is the naive answer at its position and NOW, and stays it until time changes it."""
        assert isinstance(question, _AskedSeveral) and question.written is not None
        position = self.cores[0].positions.decode(copy.position).position
        clock = copy.now if copy.slides and copy.now is not None else question.clock
        expected = self.history(position, clock).ask(question.query)
        assert copy.now == expected.now, question.text
        question.written.check(expected.answer, copy.answer(copy.now))
        if copy.now is None:
            return
        for step in _LATER:
            if copy.good_until is None or clock + step < copy.good_until:
                later = self.history(position, clock + step).ask(question.query)
                answer = copy.answer(clock + step if copy.slides else copy.now)
                question.written.check(later.answer, answer, f"{step} later")

    def live(self, seed: int) -> None:
        """Copies of two hundred texts in the life of one store, some of them at any time, drawn
        without Hypothesis."""
        dice, standing = Random(seed), list[Standing]()
        self.open(seed, dice.randint(0, 3))
        try:
            for _ in range(50):
                server = dice.randrange(2)
                standing += self.register(server, dice.getrandbits(32)).values
                standing = dice.sample(standing, min(12, len(standing)))
                self.recharge_some(server, standing)
                self.happens(dice)
                chosen, cut = dice.sample(standing, min(3, len(standing))), dice.randint(0, 12)
                budget, away = dice.choice((0, 1, 300)), dice.choice((None, 5, 100))
                self.sync(1 - server, chosen, cut, budget, True, away, False, 1)
                self.happens(dice)
                for standing_ in dice.sample(standing, min(2, len(standing))):
                    self.damage(server, standing_)
                    self.nothing_new(server, standing_)
        finally:
            self.teardown()


TestSeveralRecharge = SeveralRecharge.TestCase
TestSeveralRecharge.settings = machine_settings(5, 20)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", short_first(range(20), 6))
def test_oracle_several_recharged_for_long(seed: int) -> None:
    SeveralRecharge().live(seed)
