"""PSoup (2003), section 3.2.1, as it happens: queries and tuples that come one after the other."""

from __future__ import annotations

import pytest

from client_sdk import Client
from tests.golden.test_psoup import ROWS as TUPLES
from tests.support.system.processes import RunningStore

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(600)]

ROWS = [{"a": row["a"], "b": row["b"]} for row in TUPLES]
QUERY_24 = "SELECT row_id, a, b FROM r WHERE a < 5 AND b > 3"
MATCHES = [{"row_id": 48, "a": 2, "b": 7}, {"row_id": 50, "a": 2, "b": 7}]


def earlier_queries(client: Client) -> list[bytes]:
    """Queries 1 to 23: query q wants the tuples with a = q mod 9 and b <= q mod 5."""
    table = [{"a": q % 9, "b": q % 5} for q in range(1, 24)]
    sql = "SELECT row_id FROM r WHERE a = :a AND b <= :b"
    return list(client.register_many(sql, table).handles)


def expected_rows(query: int, rows: list[dict[str, int]]) -> list[dict[str, int]]:
    return [
        {"row_id": place}
        for place, row in enumerate(rows)
        if row["a"] == query % 9 and row["b"] <= query % 5
    ]


def check_all(client: Client, handles: list[bytes], rows: list[dict[str, int]]) -> None:
    for query, handle in enumerate(handles, start=1):
        answer = client.invoke(handle, wait_for_engine=True)
        assert answer.rows == expected_rows(query, rows)
        assert answer.computed_rows == 0


def test_psoup_2003_section_3_2_1_a_new_query_meets_the_tuples_there(
    client: Client, running: RunningStore
) -> None:
    client.define("CREATE STREAM r (a BIGINT, b BIGINT)")
    handles = earlier_queries(client)
    client.publish("r", ROWS)
    running.wait_until_matched(client)
    query = client.register(QUERY_24)
    assert client.invoke(query).rows == MATCHES
    running.wait_until_matched(client)
    answer = client.invoke(query, wait_for_engine=True)
    assert (answer.rows, answer.computed_rows) == (MATCHES, 0)
    check_all(client, handles, ROWS)


def test_psoup_2003_section_3_2_1_a_new_tuple_meets_the_queries_there(
    client: Client, running: RunningStore
) -> None:
    client.define("CREATE STREAM r (a BIGINT, b BIGINT)")
    handles = earlier_queries(client)
    query = client.register(QUERY_24)
    running.wait_until_matched(client)
    client.publish("r", ROWS)
    assert client.invoke(query, wait_for_engine=True).rows == MATCHES
    row = {"a": 4, "b": 4}
    assert client.publish("r", [row]).first_row_id == 53
    entered = [*MATCHES, {"row_id": 53, **row}]
    assert client.invoke(query).rows == entered
    answer = client.invoke(query, wait_for_engine=True)
    assert (answer.rows, answer.computed_rows) == (entered, 0)
    check_all(client, handles, [*ROWS, row])
