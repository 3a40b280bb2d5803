"""The runbook, by real incidents of an engine; test_incidents.py has those of a server."""

from __future__ import annotations

import pyarrow as pa
import pytest

from client_sdk import Client, PsoupError
from tests.support.incidents import Incident, expression_of, quick_expression_of

pytestmark = [pytest.mark.long, pytest.mark.process]

_BATCH_ROWS = 100_000


def numbers(first: int = 0) -> pa.Table:
    return pa.table({"a": pa.array(range(first, first + _BATCH_ROWS), pa.int64())})


def test_engine_away(incident: Incident) -> None:
    """An engine is killed; a stand-by takes over."""
    incident.start_server("--compute-rows", "1000000")
    incident.start_engine()
    with incident.client() as client:
        client.define("CREATE STREAM s (a BIGINT)")
        client.register("SELECT a FROM s WHERE a < 10", key="k")
        client.publish("s", numbers())
        incident.processes.wait_until_matched(client)
        incident.wait_for_end("PsoupEngineAway")
        assert incident.processes.engine is not None
        incident.processes.engine.kill()
        incident.wait_for("PsoupEngineAway")
        incident.wait_for("PsoupDown")
        incident.look("Engine away")
        client.publish("s", numbers())
        assert len(list(client.invoke("k"))) == 20
        incident.start_engine("--standby")
        incident.wait_for_end("PsoupEngineAway")
        incident.wait_for_end("PsoupDown")
        incident.processes.wait_until_matched(client)


def test_behind(incident: Incident) -> None:
    """Rows come faster than one core matches them; a minute behind is three seconds here."""
    assert "> 60" in expression_of("PsoupBehind")
    expression = quick_expression_of("PsoupBehind").replace("> 60", "> 3")
    incident.start_server("--compute-rows", "100000000")
    incident.names["KEY"] = "k0"
    incident.processes.master = "local[1]"
    engine = incident.start_engine()
    with incident.client() as client:
        client.define("CREATE STREAM s (a BIGINT)")
        for number in range(200):
            client.register(
                f"SELECT a FROM s WHERE a * a % 1009 + {number} > 1000", key=f"k{number}"
            )
        client.publish("s", numbers())
        incident.processes.wait_until_matched(client)
        incident.prometheus.wait_for_end(expression)
        publish_until(incident, client, expression)
        incident.look("Behind")
        engine.stop()
        incident.processes.master = "local[2]"
        incident.start_engine()
        incident.prometheus.wait_for_end(expression)


def publish_until(incident: Incident, client: Client, expression: str) -> None:
    """Publish rows until a query of Prometheus has a result."""
    first = _BATCH_ROWS
    while not incident.prometheus.query(expression):
        client.publish("s", numbers(first))
        first += _BATCH_ROWS


def test_backlog_full(incident: Incident) -> None:
    """No engine runs until rows are refused; an engine consumes the log."""
    incident.start_server("--backlog", "1MB")
    with incident.client(timeout=2) as client:
        client.define("CREATE STREAM s (a BIGINT)")
        incident.wait_for_end("PsoupBacklogFull")
        with pytest.raises(PsoupError) as caught:
            for number in range(100):
                client.publish("s", numbers(number * _BATCH_ROWS))
        assert caught.value.reason == "LOG_FULL"
        incident.wait_for("PsoupBacklogFull")
        # It holds for as long as rows are refused, although the log does not grow any more.
        incident.prometheus.wait_for("deriv(psoup_backlog_bytes[5s]) == 0")
        incident.wait_for("PsoupBacklogFull")
        incident.look("Backlog full")
        incident.start_engine()
        incident.wait_for_end("PsoupBacklogFull")
        client.publish("s", numbers())
