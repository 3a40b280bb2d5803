"""When the parent of a group takes a member for one that hangs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from psoup.server.group import watchdog as module
from psoup.server.group.watchdog import MemberWatchdog
from psoup.service_manager import ServiceManager

_SECONDS = 60.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture
def watchdog(tmp_path: Path, clock: SimpleNamespace) -> Iterator[MemberWatchdog]:
    watchdog = MemberWatchdog(tmp_path / "member", _SECONDS)
    yield watchdog
    watchdog.close()


@pytest.fixture
def member(watchdog: MemberWatchdog, monkeypatch: pytest.MonkeyPatch) -> ServiceManager:
    """What a member has of the watchdog: its environment."""
    for name, value in watchdog.environment.items():
        monkeypatch.setenv(name, value)
    member = ServiceManager.of_environment()
    assert member.beat_seconds == _SECONDS / 2
    return member


def test_a_member_that_has_not_begun_to_report_may_take_its_time(
    watchdog: MemberWatchdog, clock: SimpleNamespace
) -> None:
    clock.now += 100 * _SECONDS
    assert not watchdog.has_hung()


def test_a_member_has_hung_if_it_does_not_go_on(
    watchdog: MemberWatchdog, member: ServiceManager, clock: SimpleNamespace
) -> None:
    member.ready()
    assert not watchdog.has_hung()
    clock.now += _SECONDS
    member.beat()
    assert not watchdog.has_hung()
    clock.now += _SECONDS + 1
    assert watchdog.has_hung()


def test_a_parent_that_stood_still_reads_what_waits(
    watchdog: MemberWatchdog, member: ServiceManager, clock: SimpleNamespace
) -> None:
    member.ready()
    assert not watchdog.has_hung()
    clock.now += 10 * _SECONDS
    member.beat()
    assert not watchdog.has_hung()


def test_a_new_process_is_not_judged_by_the_one_before(
    watchdog: MemberWatchdog, member: ServiceManager, clock: SimpleNamespace
) -> None:
    member.ready()
    watchdog.begin()
    clock.now += 10 * _SECONDS
    assert not watchdog.has_hung()
