"""Copies of streams whose rows are valid for a time: each is the naive answer at its NOW, and
later, as long as no new row comes; whatever is cut, restarted, replaced or matched in between."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from datastem.instants import SECOND, from_micros
from tests.server.test_sync_machine import Recharge
from tests.support.server.sync_world import (
    NAMES,
    START,
    Asked,
    Question,
    machine_settings,
)

_SOON = f"{from_micros(START + 30 * SECOND):%Y-%m-%d %H:%M:%S}"
WINDOWS = (
    "",
    "",
    "RANGE 5 SECONDS",
    "RANGE 20 SECONDS SLIDE 7 SECONDS",
    "BEGIN NOW - 30 SECONDS END NOW - 3 SECONDS",
    "BEGIN NOW END NOW + 8 SECONDS",
    "BEGIN NOW + 2 SECONDS END NOW + 9 SECONDS",
    f"BEGIN NOW - 20 SECONDS END '{_SOON}'",
    f"BEGIN '{_SOON}' END NOW",
    "DURING THIS HOUR",
    "UNBOUNDED",
)
CONDITIONS = (
    "until IS NULL",
    "at < NOW - INTERVAL '3' SECOND",
    "until - NOW > INTERVAL '4' SECOND",
)
_RETAINED = ("RETAIN 3 HOURS", "", "RETAIN 3 HOURS", "", "RETAIN 3 HOURS")


def _streams(key: str) -> tuple[str, ...]:
    columns = "(a BIGINT, b TEXT, at TIMESTAMP, until TIMESTAMP)"
    return tuple(
        f"CREATE STREAM {name} {columns} {key} VALID FROM at UNTIL until {retain}"
        for name, retain in zip(NAMES, _RETAINED, strict=True)
    )


class Valid(Recharge):
    streams = _streams("")

    def ask(self, question: Question, *, computes: bool = False) -> Asked:
        window = self.chance.choice(WINDOWS)
        brought = self.chance.choice(WINDOWS) if question.other else ""
        if self.chance.random() < 0.4:
            where = f"({question.where}) AND {self.chance.choice(CONDITIONS)}"
            question = replace(question, where=where)
        # Base rows of such streams are not sent yet.
        question = replace(question, window=window, other=brought, base_rows=False)
        return super().ask(question, computes=computes)


class ValidKeys(Valid):
    streams = _streams("KEY (b)")


settings = partial(machine_settings, steps=25)

TestValid = Valid.TestCase
TestValid.settings = settings(examples=4)
TestValidKeys = ValidKeys.TestCase
TestValidKeys.settings = settings(examples=4)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestForLong(Valid.TestCase):  # type: ignore[misc, valid-type]
    """Thousands of runs."""

    settings = machine_settings(2000, 50)


@pytest.mark.soak
@pytest.mark.timeout(3600)
class TestKeysForLong(ValidKeys.TestCase):  # type: ignore[misc, valid-type]
    """Thousands of runs."""

    settings = machine_settings(2000, 50)
