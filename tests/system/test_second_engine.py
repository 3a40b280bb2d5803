"""A store has one engine: a second refuses, and the first goes on."""

from __future__ import annotations

import pytest

from client_sdk import Client
from tests.support.system.processes import Process, RunningStore

pytestmark = [pytest.mark.process, pytest.mark.spark]


def test_a_second_engine_refuses_and_the_first_is_unharmed(
    client: Client, running: RunningStore
) -> None:
    client.define("CREATE STREAM s (a BIGINT)")
    query = client.register("SELECT a FROM s WHERE a > 1")
    arguments = ["-m", "psoup.engine", "--store", str(running.store), "--master", "local[1]"]
    second = Process(arguments, running.folder / "second-engine.log")
    client.publish("s", [{"a": 1}, {"a": 2}])
    assert second.wait() != 0
    assert "engine ready" not in second.text()
    assert "a store has one engine" in second.text()
    assert running.engine is not None and running.engine.alive
    client.publish("s", [{"a": 3}])
    answer = client.invoke(query, wait_for_engine=True)
    assert (answer.rows, answer.computed_rows) == ([{"a": 2}, {"a": 3}], 0)
