"""A server killed while it accepts batches: acknowledged rows are stored once, with the row ids and
positions of the answers. (tests/server/test_faults.py has the races between two servers.)"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from client_sdk import Client, ConnectionFailed, Published, Retry, ServerError, Timeout
from tests.support.system.processes import RunningStore

pytestmark = pytest.mark.process

PUBLISHERS = 3
KILLS = 3
STREAM = "CREATE STREAM s (who TEXT, sequence BIGINT, place BIGINT)"


class Publisher:
    """A client that publishes batches, and retries each until it is acknowledged."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acknowledged: list[Published] = []

    def batch(self, sequence: int) -> list[dict[str, object]]:
        count = 1 + Random(f"{self.name} {sequence}").randrange(30)
        return [{"who": self.name, "sequence": sequence, "place": n} for n in range(count)]

    def publish(self, client: Client, sequence: int) -> Published:
        rows = self.batch(sequence)
        return client.publish("s", rows, publisher=self.name, sequence=sequence)

    def run(self, store: RunningStore, ending: threading.Event) -> None:
        """Publish to the newest server until `ending` is set; finish the current batch."""
        while not ending.is_set():
            with Client(store.targets[-1], retry=Retry(attempts=1)) as client:
                try:
                    while not ending.is_set():
                        sequence = len(self.acknowledged) + 1
                        self.acknowledged.append(self.publish(client, sequence))
                except (ConnectionFailed, ServerError, Timeout):
                    ending.wait(0.2)


def test_every_acknowledged_batch_is_there_once(tmp_path: Path) -> None:
    with RunningStore(tmp_path) as store:
        store.start_server()
        with store.client() as client:
            client.define(STREAM)
            query = client.register("SELECT who, sequence, place FROM s").handle
        publishers = [Publisher(f"p{n}") for n in range(PUBLISHERS)]
        publish_while_killing(store, publishers)
        with store.client(-1) as client:
            stored = [tuple(row.values()) for row in client.invoke(query)]
            for publisher in publishers:
                check_published(client, publisher, stored)
            check_rest(publishers, stored)


def test_a_client_of_two_servers_goes_on_if_one_is_killed(tmp_path: Path) -> None:
    """It reads its own writes on the other server."""
    with RunningStore(tmp_path) as store:
        targets = [store.start_server(), store.start_server()]
        with Client(targets) as client:
            client.define(STREAM)
            query = client.register("SELECT place FROM s", key="places")
            publisher = client.publisher("p")
            publisher.publish("s", [{"who": "p", "sequence": 1, "place": 1}])
            store.servers[0].kill()
            publisher.publish("s", [{"who": "p", "sequence": 2, "place": 2}])
            assert [row["place"] for row in client.invoke(query)] == [1, 2]
            store.start_server()
            store.servers[1].stop()
            with Client([targets[1], store.targets[-1]]) as other:
                assert [row["place"] for row in other.invoke("places")] == [1, 2]


def publish_while_killing(store: RunningStore, publishers: list[Publisher]) -> None:
    ending = threading.Event()
    dice = Random(5)
    with ThreadPoolExecutor(PUBLISHERS) as pool:
        running = [pool.submit(publisher.run, store, ending) for publisher in publishers]
        try:
            for _ in range(KILLS):
                ending.wait(dice.uniform(0.1, 0.5))
                store.servers[-1].kill()
                store.start_server()
        finally:
            ending.wait(0.3)
            ending.set()
        for future in running:
            future.result()


def check_published(client: Client, publisher: Publisher, stored: list[tuple[object, ...]]) -> None:
    """Assert that all batches have the row ids of their answers; a repeat changes nothing."""
    for sequence, outcome in enumerate(publisher.acknowledged, start=1):
        rows = [tuple(row.values()) for row in publisher.batch(sequence)]
        first = outcome.first_row_id
        assert stored[first : first + outcome.row_count] == rows
    for sequence, outcome in list(enumerate(publisher.acknowledged, start=1))[-20:]:
        again = publisher.publish(client, sequence)
        assert again.duplicate
        assert (again.position, again.first_row_id) == (outcome.position, outcome.first_row_id)


def check_rest(publishers: list[Publisher], stored: list[tuple[object, ...]]) -> None:
    """Assert that besides acknowledged rows there is at most one batch of each publisher."""
    for publisher in publishers:
        published = [row for row in stored if row[0] == publisher.name]
        tried = range(1, len(publisher.acknowledged) + 2)
        sent = [tuple(row.values()) for n in tried for row in publisher.batch(n)]
        assert published == sent[: len(published)]
        acknowledged = sum(outcome.row_count for outcome in publisher.acknowledged)
        following = len(publisher.batch(len(publisher.acknowledged) + 1))
        assert len(published) in (acknowledged, acknowledged + following)
