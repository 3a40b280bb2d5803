"""The engine's lock, and the pulse by which servers know that it lives."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from psoup.engine.errors import SecondEngine
from psoup.engine.ownership.lock import EngineLock
from psoup.store import presence
from psoup.store.presence import ENGINE_TIMEOUT_SECONDS, Pulse, PulseWatch


def observe(watch: PulseWatch) -> tuple[Pulse, float]:
    watch.look()
    assert watch.engine is not None
    return watch.engine


def test_a_pulse_goes_on_until_the_lock_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "PULSE_SECONDS", 0.001)
    lock, watch = EngineLock(tmp_path), PulseWatch(tmp_path)
    watch.look()
    assert watch.engine is None
    lock.acquire()
    first, _ = observe(watch)
    assert (first.host, first.pid) == (Pulse.first().host, Pulse.first().pid)
    while observe(watch)[0].count < first.count + 3:
        time.sleep(0.001)
    lock.release()
    watch.look()
    assert watch.engine is None
    lock.acquire()
    assert observe(watch)[1] < ENGINE_TIMEOUT_SECONDS
    lock.release()


def test_a_second_engine_learns_which_process_is_the_first(tmp_path: Path) -> None:
    lock = EngineLock(tmp_path)
    lock.acquire()
    pulse = Pulse.first()
    with pytest.raises(
        SecondEngine, match=rf"\(process {pulse.pid} on {pulse.host}\) already runs"
    ):
        EngineLock(tmp_path).acquire()
    lock.release()


def test_an_engine_whose_clock_differs_lives_as_long_as_its_pulse_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    watch, now = PulseWatch(tmp_path), time.time()
    with (tmp_path / presence.ENGINE_LOCK).open("wb") as file:
        for count, past in ((1, 86_400), (2, 86_400), (3, -86_400)):
            Pulse("far", 7, count).write(file.fileno())
            monkeypatch.setattr(time, "time", lambda past=past: now + past)
            pulse, age = observe(watch)
            assert pulse.count == count
            assert (age < ENGINE_TIMEOUT_SECONDS) == (count > 1), (
                "the first look can only believe the file"
            )
            clock[0] += 1
        clock[0] += ENGINE_TIMEOUT_SECONDS
        assert observe(watch)[1] >= ENGINE_TIMEOUT_SECONDS, "killed: nothing changes any more"


@pytest.mark.parametrize("content", [b"", b"4711\n", b'{"host": "x"', b'{"host": "x"}', b"[]"])
def test_a_file_without_a_pulse(tmp_path: Path, content: bytes) -> None:
    """The pulse of an engine that has ended, of an older version, or one read while it was
    written."""
    (tmp_path / presence.ENGINE_LOCK).write_bytes(content)
    assert Pulse.read(tmp_path) is None
