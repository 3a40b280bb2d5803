"""The machine over Sync with rows that wait: CLOCK, SLACK and LEAD, with and without a key, since
the beginning or since ALTER STREAM."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from datastem.instants import SECOND
from psoup.write.alterations import Alter
from querystem.language import AlterStream, parse_statement
from tests.server.test_sync_machine import Recharge
from tests.support.server.sync_world import NAMES, Asked, Question, machine_settings

_TIMES = (
    "SLACK 4 SECONDS LEAD 3 SECONDS RETAIN 60 SECONDS",
    "CLOCK RETAIN 60 SECONDS",
    "CLOCK",
    "LEAD 2 SECONDS RETAIN 60 SECONDS",
    "CLOCK RETAIN 30 SECONDS",
)


def _streams(key: str) -> tuple[str, ...]:
    columns = "(a BIGINT, b TEXT, at TIMESTAMP)"
    return tuple(
        f"CREATE STREAM {name} {columns} {key} ORDERED BY at {time}"
        for name, time in zip(NAMES, _TIMES, strict=True)
    )


class Waiting(Recharge):
    ahead = 8 * SECOND
    streams = _streams("")


class WaitingKeys(Recharge):
    """A waiting row ends the one before it of its key by time alone."""

    ahead = 8 * SECOND
    streams = _streams("KEY (b)")


class Altering(Recharge):
    """ALTER STREAM lets rows wait, or wait for another time."""

    ahead = 8 * SECOND

    @rule(
        server=st.integers(0, 1),
        name=st.sampled_from(("event", "latest")),
        word=st.sampled_from(("SLACK", "LEAD")),
        seconds=st.integers(1, 9),
    )
    def alter(self, server: int, name: str, word: str, seconds: int) -> None:
        text = f"ALTER STREAM {name} SET {word} {seconds} SECONDS"
        statement = parse_statement(text)
        assert isinstance(statement, AlterStream)
        proposal = Alter("main", "main", name, statement.change, 100)
        self.run(self.cores[server].appender.submit(proposal))
        for core in self.cores:
            self.run(core.follower.catch_up())
        table, micros = self.tables[name], seconds * SECOND
        before = table.schema
        is_slack = word == "SLACK"
        table.schema = replace(before, slack=micros) if is_slack else replace(before, lead=micros)

    def ask(self, question: Question, *, computes: bool = False) -> Asked:
        return super().ask(replace(question, refresh=""), computes=computes)


TestWaiting = Waiting.TestCase
TestWaiting.settings = machine_settings(5, 30)
TestWaitingKeys = WaitingKeys.TestCase
TestWaitingKeys.settings = machine_settings(8, 30)
TestAltering = Altering.TestCase
TestAltering.settings = machine_settings(4, 30)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestForLong(Waiting.TestCase):  # type: ignore[misc, valid-type]
    """Thousands of runs."""

    settings = machine_settings(2000, 50)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestKeysForLong(WaitingKeys.TestCase):  # type: ignore[misc, valid-type]
    """Thousands of runs."""

    settings = machine_settings(2000, 50)
