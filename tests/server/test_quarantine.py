"""What servers make of a quarantine: policies show nothing, conditions are computed or fail, and
Status, Explain and `psoup repair` tell of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from psoup.cli import cli
from psoup.store import Entry, LegPredicate, Position, Register, Store
from psoup.store.state.quarantine import COMPOSITE, PREDICATE, QuarantineEntry
from psoup.v1 import psoup_pb2 as pb
from tests.oracle.copy import Copy
from tests.support.server.callers import TenantServer, tenant_server
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import detail

EVENTS = "CREATE STREAM events (region TEXT, n BIGINT)"
MINE = "CREATE POLICY mine ON events USING (region = claim('region'))"
ALL = "SELECT n FROM events"

pytestmark = pytest.mark.usefixtures("counted_ids")


async def _engine(server: TenantServer) -> HandMadeEngine:
    """Define a stream with rows and a policy, use it as two callers, and match what there is."""
    boss = server.administrator
    await boss.define(EVENTS)
    await boss.define(MINE)
    await boss.publish("events", region=["eu", "us"] * 3, n=list(range(6)))
    for region in ("eu", "us"):
        await server.caller(region=region).ask(ALL)
    while len(server.core.follower.state.access.filled) < 2:
        await server.core.follower.moved(1)
    engine = HandMadeEngine(server.core.store)
    engine.step()
    return engine


def _filled(server: TenantServer, text: str) -> int:
    state = server.core.follower.state
    (policy,) = (filled for filled in state.access.filled.values() if f'"{text}"' in filled.key)
    return policy.predicate_id


async def _status(server: TenantServer, role: str) -> list[pb.Quarantined]:
    status: pb.StatusResponse = await server.caller(role).only("Status", pb.StatusRequest())
    return list(status.quarantine)


async def test_a_policy_in_quarantine_shows_nothing(tmp_path: Path) -> None:
    async with tenant_server(tmp_path / "store") as server:
        engine = await _engine(server)
        boss, eu, us = server.administrator, server.caller(region="eu"), server.caller(region="us")
        handle, copy = await boss.register(ALL), Copy()
        await eu.sync(handle, copy)
        assert copy.answer(copy.now) == [(0,), (2,), (4,)]
        entry = QuarantineEntry(PREDICATE, _filled(server, "eu"), 1, "ValueError: bad", since=5)
        engine.set_aside(entry)
        await server.core.follower.refresh()
        header, rows = await eu.invoke(handle)
        assert rows == [] and any("quarantine" in note for note in header.notes)
        assert await eu.ask("SELECT count(*) AS c FROM events") == [0]
        assert await us.ask(ALL) == [1, 3, 5]
        assert len((await boss.invoke(handle))[1]) == 6
        begin = await eu.sync(handle, copy)
        assert begin.reason == pb.SYNC_REASON_PERMISSION
        assert copy.answer(copy.now) == []
        # Another policy beside it still counts: rows are those that one of them shows.
        await boss.define("CREATE POLICY five ON events USING (n = 5)")
        assert await eu.ask(ALL) == [5]
        await boss.define("DROP POLICY five ON events")
        explained = await eu.only("Explain", pb.ExplainRequest(handle=handle))
        assert explained.legs[0].quarantined == "a row policy fails, and shows nothing"
        (reported,) = await _status(server, "operator")
        assert (reported.name, reported.tenant, reported.stream) == (entry.name, "main", "events")
        assert (reported.reason, reported.registration_count) == ("ValueError: bad", 0)
        assert list(reported.policies) == ["mine"] and reported.since.ToMicroseconds() == 5
        (reported,) = await _status(server, "administrator")
        assert not reported.name and reported.reason
        assert await _status(server, "developer") == []


async def test_the_quarantine_is_listed_and_released_while_the_server_runs(tmp_path: Path) -> None:
    path = tmp_path / "store"

    def repair(*options: str) -> str:
        run = CliRunner().invoke(cli, ["repair", str(path), *options])
        assert run.exit_code == ("predicate-99" in options), run.output
        return run.output

    async with tenant_server(path) as server:
        engine = await _engine(server)
        eu = server.caller(region="eu")
        bad = _filled(server, "eu")
        engine.set_aside(
            QuarantineEntry(PREDICATE, bad, 1, "ValueError: bad"),
            QuarantineEntry(COMPOSITE, 7, 7, "KeyError: x"),
        )
        await server.core.follower.refresh()
        assert await eu.ask(ALL) == []
        listed = repair()
        assert f"QUARANTINE: predicate-{bad} of stream number 1: ValueError: bad" in listed
        assert "QUARANTINE: composite-7: KeyError: x" in listed and "no damage" in listed
        assert "not in quarantine: predicate-99" in repair("--release", "predicate-99")
        assert f"released: predicate-{bad};" in repair("--release", f"predicate-{bad}")
        assert f"predicate-{bad}" not in repair() and "composite-7" in repair()
        # Nothing is shown before the engine has taken it back.
        await server.core.follower.catch_up()
        assert await eu.ask(ALL) == []
        audit = await server.caller("operator").only("Audit", pb.AuditRequest())
        assert (audit.records[0].action, audit.records[0].object) == ("release", f"predicate-{bad}")
        engine.step()
        await server.core.follower.refresh()
        assert await eu.ask(ALL) == [0, 2, 4]
        assert "released: composite-7" in repair("--release", "all")
        engine.step()
        assert "nothing to do" in repair("--release", "all") and "QUARANTINE" not in repair()


def _append_bad(store: Store, handle: bytes) -> bytes:
    """Append the registration of a handle again, with a condition over a column that is none."""
    version = store.log.latest_version()
    entries = (entry_ for at in range(1, version + 1) for entry_ in store.log.read(at))
    entry = next(entry_ for entry_ in entries if getattr(entry_.event, "handle", b"") == handle)
    event = entry.event
    assert isinstance(event, Register)
    leg = event.legs[0]
    key = leg.key.replace('"n"', '"nowhere"')
    assert key != leg.key
    bad = replace(
        event,
        handle=os.urandom(16),
        legs=(LegPredicate(leg.stream_id, leg.predicate_id + 1, key),),
    )
    place = Position(version + 1, 0)
    store.log.append(version + 1, [Entry(place, entry.stamp + 1, "main", "main", bad)])
    return bad.handle


async def test_a_condition_in_quarantine_fails_by_itself_alone(tmp_path: Path) -> None:
    async with tenant_server(tmp_path / "store") as server:
        boss = server.administrator
        await boss.define(EVENTS)
        await boss.publish("events", region=["eu", "us"] * 3, n=list(range(6)))
        good = await boss.register("SELECT n FROM events WHERE n < 3")
        engine = HandMadeEngine(server.core.store)
        engine.step()
        bad = _append_bad(server.core.store, good)
        with pytest.raises(grpc.RpcError) as failed:
            await boss.invoke(bad)
        assert failed.value.code() == grpc.StatusCode.INTERNAL
        id_ = server.core.follower.state.registrations[bad].legs[0].predicate_id
        engine.set_aside(QuarantineEntry(PREDICATE, id_, 1, "KeyError: nowhere"))
        engine.step()
        await server.core.follower.refresh()
        with pytest.raises(grpc.RpcError) as failed:
            await boss.invoke(bad)
        assert failed.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert detail(failed.value).reason == "CONDITION_FAILS"
        assert (await boss.invoke(good))[1] == [0, 1, 2]
        explained = await boss.only("Explain", pb.ExplainRequest(handle=bad))
        assert explained.legs[0].quarantined == "the condition fails: KeyError: nowhere"
        explained = await server.caller().only("Explain", pb.ExplainRequest(handle=bad))
        assert explained.legs[0].quarantined == "the condition fails"
        explained = await boss.only("Explain", pb.ExplainRequest(handle=good))
        assert not explained.legs[0].quarantined
        status = await boss.only("Status", pb.StatusRequest())
        assert status.quarantine[0].registration_count == 1
        # It is not counted as work that back-fill has yet to do.
        assert status.backfill_rows == 0


async def test_matches_from_before_the_quarantine_are_used_and_later_rows_computed(
    tmp_path: Path,
) -> None:
    async with tenant_server(tmp_path / "store") as server:
        boss = server.administrator
        await boss.define(EVENTS)
        handle = await boss.register("SELECT n FROM events WHERE n % 2 = 1")
        await boss.publish("events", region=["eu"] * 6, n=list(range(6)))
        engine = HandMadeEngine(server.core.store)
        engine.step()
        id_ = server.core.follower.state.registrations[handle].legs[0].predicate_id
        engine.set_aside(QuarantineEntry(PREDICATE, id_, 1, "a test"))
        await boss.publish("events", region=["eu"] * 4, n=list(range(6, 10)))
        engine.step()
        await server.core.follower.refresh()
        header, numbers = await boss.invoke(handle)
        assert sorted(numbers) == [1, 3, 5, 7, 9]
        assert header.computed_rows == 4
        explained = await boss.only("Explain", pb.ExplainRequest(handle=handle))
        assert (explained.legs[0].matched_rows, explained.legs[0].stream_rows) == (6, 10)
