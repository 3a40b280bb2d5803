"""The machine over Sync with all that time decides at once: rows that wait (CLOCK, SLACK, LEAD),
calendar windows and conditions on NOW, with and without a key and row policies."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest

from datastem.instants import MINUTE, to_micros
from querystem.language.tokens.literals import read_timestamp
from tests.server.test_calendar_machine import WINDOWS
from tests.server.test_now_machine import Asking, PolicyPresent, Present
from tests.support.server.sync_world import NAMES, Asked, Question, World, machine_settings

# The hours that rows are late or ahead by are what seconds are in other machines.
_TIMES = (
    "SLACK 80 MINUTES LEAD 60 MINUTES AHEAD 30 DAYS RETAIN 80 HOURS",
    "CLOCK AHEAD 30 DAYS RETAIN 80 HOURS",
    "CLOCK AHEAD 30 DAYS",
    "LEAD 40 MINUTES AHEAD 30 DAYS RETAIN 80 HOURS",
    "CLOCK AHEAD 30 DAYS RETAIN 76 HOURS",
)


def _streams(key: str) -> tuple[str, ...]:
    columns = "(a BIGINT, b TEXT, at TIMESTAMP)"
    return tuple(
        f"CREATE STREAM {name} {columns} {key} ORDERED BY at {time}"
        for name, time in zip(NAMES, _TIMES, strict=True)
    )


class Mixing(Asking):
    """Asks half of the time in calendar windows."""

    start, pace = to_micros(read_timestamp("2026-10-24 18:00")), 20 * MINUTE
    ahead = 8 * 20 * MINUTE

    def ask(self, question: Question, *, computes: bool = False) -> Asked:
        if self.chance.random() < 0.5:
            question = replace(question, window=self.chance.choice(WINDOWS))
        if question.other and self.chance.random() < 0.5:
            question = replace(question, other=self.chance.choice(WINDOWS))
        return super().ask(question, computes=computes)


class Minutes(World):
    """What conditions on NOW call a second is the world's."""

    def ask(self, question: Question, *, computes: bool = False) -> Asked:
        where, select = map(_scaled, (question.where, question.select))
        return super().ask(replace(question, where=where, select=select), computes=computes)


def _scaled(text: str) -> str:
    return re.sub(r"'(\d+)' SECOND", lambda hit: f"'{int(hit[1]) * 20}' MINUTE", text)


class Mixed(Mixing, Present, Minutes):
    streams = _streams("")


class MixedKeys(Mixing, Present, Minutes):
    streams = _streams("KEY (b)")


class MixedPolicies(Mixing, PolicyPresent, Minutes):
    streams = _streams("KEY (b)")


settings = partial(machine_settings, steps=25)

TestMixed = Mixed.TestCase
TestMixed.settings = settings(examples=2)
TestMixedKeys = MixedKeys.TestCase
TestMixedKeys.settings = settings(examples=3)
TestMixedPolicies = MixedPolicies.TestCase
TestMixedPolicies.settings = settings(examples=2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestForLong(Mixed.TestCase):  # type: ignore[misc, valid-type]
    """Thousands of runs."""

    settings = machine_settings(2000, 50)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestKeysForLong(MixedKeys.TestCase):  # type: ignore[misc, valid-type]
    """Thousands of runs."""

    settings = machine_settings(2000, 50)
