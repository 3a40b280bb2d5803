"""Joins of real rows: traffic with its sensors, trades with each other, parking with its lots;
DuckDB as judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_sdk import Client, Copies
from tests.support.real.filled import FilledStore
from tests.support.real.joins import JOINS, RealJoin
from tests.support.real.judge import StreamsJudge
from tests.support.real.streams import RealStream
from tests.support.system.duck import close
from tests.support.system.processes import RunningStore


@pytest.fixture(scope="module", params=JOINS)
def filled(
    request: pytest.FixtureRequest, shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RealJoin, FilledStore]:
    join: RealJoin = JOINS[request.param]
    folder = tmp_path_factory.mktemp(request.param) / "store"
    return join, FilledStore.of(folder, join.read(shared_data))


@pytest.mark.parametrize("number", range(5))
def test_real_joins_are_duckdb_s(filled: tuple[RealJoin, FilledStore], number: int) -> None:
    """Now and as of the middle of the data."""
    join, store = filled
    ours, theirs = list(join.queries.items())[number]
    judge = StreamsJudge(store.streams)
    expected = judge.answer(theirs, store.streams[0].last)
    assert expected, "nothing to compare"
    assert close(store.answer(ours), expected), ours
    expected = judge.answer(theirs, join.middle)
    assert expected, "nothing to compare"
    assert close(store.answer(ours, join.middle), expected), ours


@pytest.mark.process
@pytest.mark.timeout(600)
def test_copies_of_real_joins_are_duckdb_s(shared_data: Path, tmp_path: Path) -> None:
    """Through a server: synced when half of the rows have come, and again at the end."""
    with RunningStore(tmp_path) as store:
        store.start_server("--wait", "300")
        for tenant, join in JOINS.items():
            with Client(store.targets[0], tenant=tenant) as client:
                _check_copy(client, join, join.read(shared_data))


def _check_copy(client: Client, join: RealJoin, streams: list[RealStream]) -> None:
    ours, theirs = next(iter(join.queries.items()))
    for stream in streams:
        client.define(stream.definition)
    handle = client.register(ours).handle
    copies, judge = Copies.in_memory(), StreamsJudge(streams)
    copies.keep("copy", handle=handle)
    halves = (
        [one.until(join.middle) for one in streams],
        [one.after(join.middle) for one in streams],
    )
    for half in halves:
        for stream in half:
            if stream.rows.num_rows:
                client.publish(stream.name, stream.rows)
        expected = judge.answer(theirs, half[0].last)
        assert copies.sync(client).complete
        held = [tuple(row.values()) for row in copies["copy"].rows()]
        invoked = [tuple(row.values()) for row in client.invoke(handle).rows]
        assert expected and close(held, expected) and close(invoked, expected), ours
