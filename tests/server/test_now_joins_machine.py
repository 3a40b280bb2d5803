"""Copies of joins with conditions on NOW: each combination comes and goes at its instants, as the
naive answer of the text with the instant in the place of NOW says."""

from __future__ import annotations

import re

import pytest
from hypothesis.stateful import MultipleResults, multiple, rule

from datastem.instants import format_instant
from querystem.language import bind_query
from querystem.query import Query
from tests.server.test_several_sync_machine import _LATER, SeveralRecharge, _AskedSeveral
from tests.server.test_sync_machine import Recharge, Standing
from tests.support.server.several_world import SEEDS, SeveralAsked
from tests.support.server.sync_world import Asked, Seen, machine_settings

_TOGETHER = (("event", "latest"), ("arrival", "kept", "spot"))
_WINDOWS = ("RANGE 20 SECONDS", "RANGE 45 SECONDS", "BEGIN NOW - 30 SECONDS END NOW - 3 SECONDS")
_DUE = "(CASE WHEN {0}.a > 1 THEN {0}.ts + INTERVAL '9' SECOND ELSE {0}.ts END)"
_X, _Y = _DUE.format("x"), _DUE.format("y")
_MOMENTS = (
    f"{_X} < NOW",
    f"{_X} <= NOW AND {_Y} < NOW - INTERVAL '2' SECOND",
    "greatest(x.ts, y.ts) + x.a * INTERVAL '4' SECOND < NOW",
    f"{_X} > NOW",
    f"{_X} + INTERVAL '3' SECOND > NOW AND y.ts < NOW",
    f"{_X} BETWEEN NOW - INTERVAL '12' SECOND AND NOW - INTERVAL '2' SECOND",
    f"NOW - {_Y} < INTERVAL '15' SECOND AND x.a > 0",
    f"({_X} < NOW OR y.a = 2)",
)
_TEXTS = (
    "SELECT x.a, y.b FROM {} x WINDOW({}), {} y WINDOW({}) WHERE x.b = y.b AND {}",
    "SELECT y.a, x.b, y.ts FROM {} x WINDOW({}) JOIN {} y WINDOW({}) ON x.a = y.a WHERE {}"
    " ORDER BY y.a, x.b, y.ts",
)


class PresentJoins(SeveralRecharge):
    @rule(target=Recharge.standing, seed=SEEDS)
    def register(self, seed: int) -> MultipleResults[Standing]:
        return multiple(*[self.standing_for(0, case) for case in self._asked(seed)])

    def _asked(self, seed: int) -> list[_AskedSeveral]:
        return [self._drawn() for _ in range(3)]

    def _drawn(self) -> _AskedSeveral:
        chance = self.chance
        names = chance.choice(_TOGETHER)
        x, y = chance.choice(names), chance.choice(names)
        windows = chance.choice(_WINDOWS), chance.choice(_WINDOWS)
        moment = chance.choice(_MOMENTS)
        text = chance.choice(_TEXTS).format(x, windows[0], y, windows[1], moment)
        written = SeveralAsked(text, self._bound(text), "ORDER BY" in text)
        return _AskedSeveral(text, written.query, self.tables[x], "", False, written=written)

    def check(self, question: Asked, copy: Seen) -> None:
        assert isinstance(question, _AskedSeveral) and question.written is not None
        position = self.cores[0].positions.decode(copy.position).position
        if copy.now is None:
            assert copy.answer(None) == []
            return
        by_clock = question.table.by_clock
        assert copy.slides == (by_clock and " OR " not in question.text)
        for step in _LATER if by_clock else (0,):
            if copy.good_until is None or copy.now + step < copy.good_until:
                now = copy.now + step
                # Over event time the copy is as of how far its streams have come.
                history = self.history(position, now if by_clock else self.clock)
                naive = history.ask(self._bound(question.text, now))
                assert naive.now == now
                answer = copy.answer(now if copy.slides else copy.now)
                question.written.check(naive.answer, answer, f"{step} later")

    def _bound(self, text: str, now: int | None = None) -> Query:
        """Return the query of a text, with an instant in the place of NOW in its conditions."""
        if now is not None:
            instant = f"TIMESTAMP '{format_instant(now)}'"
            source, where = text.split(" WHERE ")
            text = f"{source} WHERE {re.sub('NOW', instant, where)}"
        return bind_query(text, lambda name: self.tables[name].schema)


TestPresentJoins = PresentJoins.TestCase
TestPresentJoins.settings = machine_settings(4, 20)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestForLong(PresentJoins.TestCase):  # type: ignore[misc, valid-type]
    """Thousands of runs."""

    settings = machine_settings(2000, 50)
