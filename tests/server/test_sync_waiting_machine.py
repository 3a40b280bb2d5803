"""The machine over Sync with rows that wait: CLOCK, SLACK and LEAD, with and without a key."""

from __future__ import annotations

import pytest

from datastem.instants import SECOND
from tests.server.test_sync_machine import Recharge
from tests.support.server.sync_world import NAMES, machine_settings

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


TestWaiting = Waiting.TestCase
TestWaiting.settings = machine_settings(5, 30)
TestWaitingKeys = WaitingKeys.TestCase
TestWaitingKeys.settings = machine_settings(8, 30)


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
