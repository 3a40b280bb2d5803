"""Joins of which the engine has admitted other rows, or did once: each answer has all its rows, and
none is joined at invoke once the engine is done."""

from __future__ import annotations

import pytest

from client_sdk import Client

pytestmark = [pytest.mark.process, pytest.mark.spark]

PATIENCE = 300
SQL = "SELECT a.x, a.k, b.y FROM a, b WHERE a.k = b.k AND a.x = {}"


def define(client: Client) -> None:
    client.define("CREATE STREAM a (x BIGINT, k BIGINT)")
    client.define("CREATE STREAM b (k BIGINT, y BIGINT)")


def publish(client: Client, y: int) -> None:
    """Rows of both legs: keys 0 and 1 for x of 1 and of 2, and `y` for the keys 1 and 2."""
    client.publish("a", [{"x": x, "k": k} for x in (1, 2) for k in (0, 1)])
    client.publish("b", [{"k": k, "y": y} for k in (1, 2)])


def answered(client: Client, handle: bytes) -> list[tuple[int, int, int]]:
    """Return the answer once the engine is done, with nothing left to compute or to join."""
    answer = client.invoke(handle, wait_for_engine=True, timeout=PATIENCE)
    assert (answer.computed_rows, answer.joined_pairs) == (0, 0)
    return sorted((row["x"], row["k"], row["y"]) for row in answer.rows)


def test_a_join_that_wants_other_rows_has_the_old_ones(client: Client) -> None:
    define(client)
    first = client.register(SQL.format(1)).handle
    publish(client, 7)
    assert answered(client, first) == [(1, 1, 7)]
    second = client.register(SQL.format(2)).handle
    at_once = client.invoke(second)
    assert [(row["x"], row["k"], row["y"]) for row in at_once.rows] == [(2, 1, 7)]
    assert answered(client, second) == [(2, 1, 7)]
    publish(client, 8)
    assert answered(client, second) == [(2, 1, 7), (2, 1, 7), (2, 1, 8), (2, 1, 8)]
    assert answered(client, first) == [(1, 1, 7), (1, 1, 7), (1, 1, 8), (1, 1, 8)]


@pytest.mark.parametrize("stays", [True, False], ids=["composite stays", "composite ends"])
def test_a_join_that_comes_back_has_the_rows_of_its_absence(client: Client, stays: bool) -> None:
    """Its local predicate stays in use for a query over one stream, which does not affect the
    join."""
    define(client)
    remaining = [client.register(SQL.format(2)).handle] if stays else []
    client.register("SELECT k FROM a WHERE x = 1")
    goes = client.register(SQL.format(1)).handle
    publish(client, 7)
    assert answered(client, goes) == [(1, 1, 7)]
    client.unregister(goes)
    publish(client, 8)
    for registered in remaining:
        assert answered(client, registered) == [(2, 1, 7), (2, 1, 7), (2, 1, 8), (2, 1, 8)]
    again = client.register(SQL.format(1)).handle
    assert len(client.invoke(again).rows) == 4
    assert answered(client, again) == [(1, 1, 7), (1, 1, 7), (1, 1, 8), (1, 1, 8)]
    publish(client, 9)
    assert len(answered(client, again)) == 9
