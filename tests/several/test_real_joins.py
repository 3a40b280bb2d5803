"""Joins of real rows: traffic with its sensors, trades with each other, parking with its lots;
DuckDB as judge."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from client_sdk import Client, Copies
from tests.support.real.filled import FilledStore
from tests.support.real.joins import JOINS, RealJoin
from tests.support.real.judge import StreamsJudge
from tests.support.real.streams import RealStream
from tests.support.system.duck import close
from tests.support.system.processes import RunningStore

QUERIES = [(name, number) for name, join in JOINS.items() for number in range(len(join.queries))]


@pytest.fixture(scope="module")
def stores(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], FilledStore]:
    """A store for each join, filled when it is first asked for."""

    def filled(name: str) -> FilledStore:
        folder = tmp_path_factory.mktemp(name) / "store"
        return FilledStore.of(folder, JOINS[name].read(shared_data))

    return functools.cache(filled)


@pytest.mark.parametrize(("name", "number"), QUERIES)
def test_real_joins_are_duckdb_s(
    stores: Callable[[str], FilledStore], name: str, number: int
) -> None:
    """Now and as of the middle of the data."""
    join, store = JOINS[name], stores(name)
    sql, duckdb_sql = list(join.queries.items())[number]
    judge = StreamsJudge(store.streams)
    expected = judge.answer(duckdb_sql, store.streams[0].last)
    assert expected, "nothing to compare"
    assert close(store.answer(sql), expected), sql
    expected = judge.answer(duckdb_sql, join.middle)
    assert expected, "nothing to compare"
    assert close(store.answer(sql, join.middle), expected), sql


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
    sql, duckdb_sql = next(iter(join.queries.items()))
    for stream in streams:
        client.define(stream.definition)
    handle = client.register(sql).handle
    copies, judge = Copies.in_memory(), StreamsJudge(streams)
    copies.keep("copy", handle=handle)
    halves = (
        [real.until(join.middle) for real in streams],
        [real.after(join.middle) for real in streams],
    )
    for half in halves:
        for stream in half:
            if stream.rows.num_rows:
                client.publish(stream.name, stream.rows)
        expected = judge.answer(duckdb_sql, half[0].last)
        assert copies.sync(client).complete
        copied = [tuple(row.values()) for row in copies["copy"].rows()]
        invoked = [tuple(row.values()) for row in client.invoke(handle).rows]
        assert expected and close(copied, expected) and close(invoked, expected), sql
