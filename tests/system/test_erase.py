"""A customer is erased from a store that runs with the defaults of every process: answers lack the
rows at once, the status says what is left on disk, and it is not done before no file has a byte of
them."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from client_sdk import Client, Copies, PreconditionFailed
from psoup.cli import cli
from psoup.store import Store
from tests.engine.test_erase import EAGER, finish
from tests.support.engine.leftovers import leftovers
from tests.support.engine.pump import Pump
from tests.support.system.processes import RunningStore

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

NAME, STREET, ID = "Annabella-Zyx", "Zyx-street", 918273645546372
STREAMS = (
    "CREATE STREAM customers (id BIGINT, name TEXT) KEY (id)",
    "CREATE STREAM orders (id BIGINT, customer BIGINT, street TEXT) KEY (id)",
    "CREATE STREAM visits (customer BIGINT, page TEXT, at TIMESTAMP) ORDERED BY at",
)
JOINED = "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id"
# The engine does the rest after the grace only, an hour.
WAITS_FOR_GRACE = "old files"
SECONDS = 300.0


def status(store: Path) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(cli, ["erase", "--status", str(store), "--json"])
    return done.exit_code, json.loads(done.stdout)


def fill(client: Client, first: int) -> None:
    """Publish rows of the customer among others."""
    numbers = range(first, first + 20)
    customers = [{"id": n, "name": f"name-{n}"} for n in numbers]
    client.publish("customers", [*customers, {"id": ID, "name": NAME}])
    orders = [{"id": n, "customer": n, "street": "a street"} for n in numbers]
    client.publish("orders", [*orders, {"id": -1 - first, "customer": ID, "street": STREET}])
    at = datetime(2026, 1, 5, 9, 0, first, tzinfo=UTC)
    client.publish("visits", [{"customer": n, "page": "p", "at": at} for n in (*numbers, ID)])


def test_a_customer_is_erased_from_a_running_store(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "phone").mkdir()
    with RunningStore(tmp_path) as running:
        running.start_server()
        running.start_engine()
        phone = Copies(tmp_path / "phone" / "copies.db")
        with running.client() as client, phone:
            for sql in STREAMS:
                client.define(sql)
            phone.keep("names", "SELECT id, name FROM customers")
            phone.keep("joined", JOINED)
            for first in (0, 20):
                fill(client, first)
                running.wait_until_matched(client)
            phone.sync(client)
            # These rows are in the log only.
            running.engine.kill()  # type: ignore[union-attr]
            fill(client, 40)
            assert leftovers(running.store / "log", NAME)
            orders = client.ask(f"SELECT id FROM orders WHERE customer = {ID}").rows
            assert len(orders) == 3
            for row in orders:
                client.define(f"ERASE FROM orders WHERE id = {row['id']}")
            client.define(f"ERASE FROM customers WHERE id = {ID}")
            client.define(f"ERASE FROM visits WHERE customer = {ID}")
            code, erased = status(running.store)
            assert code == 1 and len(erased) == 5 and not any(e["done"] for e in erased)
            texts = "SELECT id, name FROM customers", "SELECT customer FROM visits", JOINED
            answers = "".join(str(client.ask(text).rows) for text in texts)
            assert str(ID) not in answers and NAME not in answers and "name-59" in answers
            with pytest.raises(PreconditionFailed, match="erased"):
                client.publish("customers", [{"id": ID, "name": NAME}])
            phone.sync(client)
            assert NAME not in str(phone["names"].rows()) + str(phone["joined"].rows())
            running.start_engine()
            deadline = time.monotonic() + SECONDS
            while not all(WAITS_FOR_GRACE in str(e["left"]) for e in status(running.store)[1]):
                assert time.monotonic() < deadline, status(running.store)
                time.sleep(0.2)
            assert status(running.store)[0] == 1 and leftovers(running.store, NAME, STREET)
            assert running.engine is not None and running.engine.stop() == 0
        assert not leftovers(tmp_path / "phone", NAME)
        # Another engine, whose grace is over at once.
        store = Store.open(running.store)
        finish(Pump(store, spark, EAGER), store)
        code, erased = status(running.store)
        assert code == 0 and all(e["done"] for e in erased)
        assert not leftovers(running.store, NAME, STREET, ID, str(ID))
        running.start_server()
        with running.client(-1) as client:
            assert len(client.ask("SELECT id FROM customers").rows) == 60
            assert len(client.ask(JOINED).rows) == 60
