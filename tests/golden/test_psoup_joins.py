"""PSoup (2003), section 3.2.2: a query over two streams, in every order in which it and the rows of
both can come."""

from __future__ import annotations

import itertools

import pytest

from client_sdk import Client

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(600)]

SQL = "SELECT r.a, s.b FROM r, s WHERE r.a < 5 AND r.a > s.b AND s.b > 1"
ANSWER = [{"a": 3, "b": 2}, {"a": 4, "b": 2}, {"a": 4, "b": 3}]
ORDERS = list(itertools.permutations(["query", "r", "s"]))


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_psoup_3_2_2_in_any_order(client: Client, order: tuple[str, ...]) -> None:
    client.define("CREATE STREAM r (a BIGINT)")
    client.define("CREATE STREAM s (b BIGINT)")
    rows = {"r": [{"a": n} for n in range(10)], "s": [{"b": n} for n in range(10)]}
    handle = b""
    for one in order:
        if one == "query":
            handle = client.register(SQL).handle
        else:
            client.publish(one, rows[one])
        if handle:
            there = {"query", *order[: order.index(one) + 1]} >= {"r", "s"}
            assert _sorted(client.invoke(handle).rows) == (ANSWER if there else [])
    answer = client.invoke(handle, wait_for_engine=True, timeout=300)
    assert (_sorted(answer.rows), answer.computed_rows) == (ANSWER, 0)


def _sorted(rows: list[dict[str, int]]) -> list[dict[str, int]]:
    return sorted(rows, key=lambda row: (row["a"], row["b"]))
