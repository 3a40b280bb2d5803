"""PSoup (2003), section 3.2.2: a query over two streams, in every order in which it and the rows of
both can come, with a window and without; and with an equality in place of its inequality."""

from __future__ import annotations

import itertools

import pytest

from client_sdk import Client

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(600)]

SQL = "SELECT r.a, s.b FROM r, s WHERE r.a < 5 AND r.a > s.b AND s.b > 1"
ANSWER = [(3, 2), (4, 2), (4, 3)]
COMPOSED = "SELECT r.a, s.b FROM r, s WHERE r.a < 5 AND r.a = s.b + 1 AND s.b > 1"
COMPOSED_ANSWER = [(3, 2), (4, 3)]
ORDERS = list(itertools.permutations(["query", "r", "s"]))


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_psoup_3_2_2_in_any_order(client: Client, order: tuple[str, ...]) -> None:
    """Without a window the inequality is joined at invoke, and no call waits for the engine to do
    so."""
    assert in_order(client, SQL, order, ANSWER) > 0


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_psoup_3_2_2_in_a_window_in_any_order(client: Client, order: tuple[str, ...]) -> None:
    """In a window that is bounded in time the engine finds it ahead."""
    assert in_order(client, f"{SQL} RANGE 1 HOUR", order, ANSWER) == 0


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_psoup_3_2_2_with_an_equality_in_any_order(client: Client, order: tuple[str, ...]) -> None:
    assert in_order(client, COMPOSED, order, COMPOSED_ANSWER) == 0


def in_order(
    client: Client, sql: str, order: tuple[str, ...], expected: list[tuple[int, int]]
) -> int:
    """How many pairs are joined at invoke once the query and the rows have come in an order and the
    engine is done."""
    client.define("CREATE STREAM r (a BIGINT)")
    client.define("CREATE STREAM s (b BIGINT)")
    rows = {"r": [{"a": n} for n in range(10)], "s": [{"b": n} for n in range(10)]}
    handle = b""
    for step in order:
        if step == "query":
            handle = client.register(sql).handle
        else:
            client.publish(step, rows[step])
        if handle:
            complete = {"query", *order[: order.index(step) + 1]} >= {"r", "s"}
            assert _sorted(client.invoke(handle).rows) == (expected if complete else [])
    answer = client.invoke(handle, wait_for_engine=True, timeout=300)
    assert (_sorted(answer.rows), answer.computed_rows) == (expected, 0)
    return answer.joined_pairs


def _sorted(rows: list[dict[str, int]]) -> list[tuple[int, int]]:
    return sorted((row["a"], row["b"]) for row in rows)
