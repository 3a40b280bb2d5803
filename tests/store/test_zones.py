"""Rules of time zones in the log, in the state and in its table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from datastem.zones import ZoneRules, machine_rules
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Position, State, Store, ZoneDefined
from psoup.store.audit import records_of
from psoup.store.log.event_table import from_table, to_table
from psoup.store.log.events import Entry
from psoup.write.zones import DefineZone
from tests.support.server.epochs import HandMadeEngine

MADRID = machine_rules("Europe/Madrid")


def test_an_event_is_read_as_it_was_written() -> None:
    entry = Entry(Position(3, 0), 7, "", "", ZoneDefined(MADRID))
    (again,) = from_table(3, to_table([entry]))
    assert isinstance(again.event, ZoneDefined)
    assert again == entry and again.event.rules.has_rules_of(MADRID)


def test_other_rules_are_in_the_audit() -> None:
    first, second = (
        Entry(Position(1, 0), 7, "", "", ZoneDefined(MADRID.of_version(version)), actor="ops/root")
        for version in (1, 2)
    )
    assert not records_of(State(), first)
    (record,) = records_of(State(), second)
    assert record.owner == "ops/root"
    assert (record.action, record.object, record.detail) == (
        "renew zone",
        "Europe/Madrid",
        "version 2",
    )


def test_a_draft_leaves_the_rules_of_the_state() -> None:
    state = State()
    draft = state.draft()
    draft.apply(Entry(Position(1, 0), 0, "", "", ZoneDefined(MADRID)))
    assert draft.zones == {"Europe/Madrid": MADRID} and not state.zones


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[Core]:
    core = Core(Store.open(path, create=True, sync=False), Settings(path))
    await core.start()
    try:
        yield core
    finally:
        await core.stop()


@pytest.mark.parametrize("steps", [0, 2], ids=["log", "table"])
async def test_rules_are_defined_once_and_survive(tmp_path: Path, steps: int) -> None:
    tokyo = machine_rules("Asia/Tokyo")
    tokyo_rules = ZoneRules("Europe/Madrid", 1, tokyo.starts[1:], tokyo.offsets)
    async with running(tmp_path / "store") as core:
        engine = HandMadeEngine(core.store)
        for proposal in (
            DefineZone(MADRID),
            DefineZone(tokyo_rules),
            DefineZone(MADRID, renew=True),
        ):
            await core.appender.submit(proposal)
            assert core.follower.state.zones == {"Europe/Madrid": MADRID}
        await core.appender.submit(DefineZone(tokyo_rules, renew=True))
        for _ in range(steps):
            engine.step()
    async with running(tmp_path / "store") as core:
        (stored,) = core.follower.state.zones.values()
        assert stored.version == 2 and stored.has_rules_of(tokyo_rules)
