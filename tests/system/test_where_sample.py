"""WHERE clauses from a public corpus, through a running store and its engine."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from client_sdk import Client
from querystem.language import stream_sql
from tests.oracle.where_corpus import Case, Table, load
from tests.support.system.processes import RunningStore

pytestmark = [pytest.mark.process, pytest.mark.spark]

SAMPLE = 200


@pytest.fixture(scope="module")
def sample(shared_data: Path) -> list[Case]:
    """Half of them with rows in the answer; most of the corpus has none."""
    dice = Random(20031116)
    cases = list(load(shared_data / "where" / "where.jsonl.gz", every=11))
    full = [case for case in cases if case.expected]
    empty = [case for case in cases if not case.expected]
    return dice.sample(full, SAMPLE // 2) + dice.sample(empty, SAMPLE // 2)


@pytest.mark.long
def test_a_sample_of_where_clauses_finds_its_rows(
    client: Client, tenant: str, running: RunningStore, sample: list[Case]
) -> None:
    """Half of each table's queries are registered before its rows, the other half after."""
    tables = {id(case.table): case.table for case in sample}
    names = {key: f"table{place}" for place, key in enumerate(tables)}
    for key, table in tables.items():
        client.define(_named(stream_sql(table.schema), table, names[key]))
    handles = [_register(client, case, names) for case in sample[::2]]
    for key, table in tables.items():
        client.publish(names[key], table.batch.select(table.schema.arrow.names))
    handles += [_register(client, case, names) for case in sample[1::2]]
    registered = list(zip(sample[::2] + sample[1::2], handles, strict=True))
    assert not [case.sql for case, handle in registered if _wrong(client, case, handle)]
    running.wait_until_matched(client)
    running.start_server()
    with Client(running.targets[-1], tenant=tenant) as other_client:
        assert sum(other_client.invoke(handle).computed_rows for _, handle in registered) == 0
        assert not [case.sql for case, handle in registered if _wrong(other_client, case, handle)]


def _named(sql: str, table: Table, name: str) -> str:
    return sql.replace(f"CREATE STREAM {table.schema.name} ", f"CREATE STREAM {name} ", 1)


def _register(client: Client, case: Case, names: dict[int, str]) -> bytes:
    old, new = case.table.schema.name, names[id(case.table)]
    return client.register(case.sql.replace(f" FROM {old} ", f" FROM {new} ", 1)).handle


def _wrong(client: Client, case: Case, handle: bytes) -> bool:
    rows = client.invoke(handle).to_arrow()
    values = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    return case.shown(values) != case.expected
