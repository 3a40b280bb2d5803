"""Nothing acknowledged is lost and nothing is counted twice, whichever server is killed when."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from client_sdk import Client, ConnectionFailed, Published, Retry, ServerError, Timeout
from tests.system.processes import RunningStore

pytestmark = pytest.mark.process

T = TypeVar("T")

PUBLISHERS = 3
KILLS = 3
STREAM = "CREATE STREAM s (who TEXT, sequence BIGINT, place BIGINT)"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    with RunningStore(tmp_path_factory.mktemp("servers")) as running:
        running.start_server()
        running.start_server()
        yield running


@pytest.fixture
def pair(store: RunningStore) -> Iterator[tuple[Client, Client]]:
    """One tenant over two servers, both of which know its stream."""
    tenant = f"t{secrets.token_hex(4)}"
    with Client(store.targets[0], tenant=tenant) as left:
        left.define(STREAM)
        with Client(store.targets[1], tenant=tenant) as right:
            right.position = left.position
            right.invoke(left.register("SELECT ts FROM s").handle)
            yield left, right


class Publisher:
    """Publishes batch after batch, each again and again until it is acknowledged."""

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
        """To the newest server, until told to end; what was begun is finished."""
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
            found = [tuple(row.values()) for row in client.invoke(query)]
            for publisher in publishers:
                check_published(client, publisher, found)
            check_rest(publishers, found)


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


def check_published(client: Client, publisher: Publisher, found: list[tuple[object, ...]]) -> None:
    """All batches at the ids they were acknowledged with; a repeat changes nothing."""
    for sequence, said in enumerate(publisher.acknowledged, start=1):
        rows = [tuple(row.values()) for row in publisher.batch(sequence)]
        first = said.first_row_id
        assert found[first : first + said.row_count] == rows
    for sequence, said in list(enumerate(publisher.acknowledged, start=1))[-20:]:
        again = publisher.publish(client, sequence)
        assert again.duplicate
        assert (again.position, again.first_row_id) == (said.position, said.first_row_id)


def check_rest(publishers: list[Publisher], found: list[tuple[object, ...]]) -> None:
    """Besides what was acknowledged there is at most the batch each had under way at a kill."""
    for publisher in publishers:
        mine = [row for row in found if row[0] == publisher.name]
        tried = range(1, len(publisher.acknowledged) + 2)
        sent = [tuple(row.values()) for n in tried for row in publisher.batch(n)]
        assert mine == sent[: len(mine)]
        known = sum(said.row_count for said in publisher.acknowledged)
        following = len(publisher.batch(len(publisher.acknowledged) + 1))
        assert len(mine) in (known, known + following)


def test_two_servers_take_one_publishers_batches_in_turns(pair: tuple[Client, Client]) -> None:
    left, right = pair
    query = left.register("SELECT sequence, place FROM s")
    publisher = Publisher("both")
    expected = []
    for sequence in range(1, 41):
        said = publisher.publish(pair[sequence % 2], sequence)
        assert not said.duplicate
        again = publisher.publish(pair[1 - sequence % 2], sequence)
        assert (again.duplicate, again.position) == (True, said.position)
        expected += [(sequence, row["place"]) for row in publisher.batch(sequence)]
    for client in pair:
        assert [tuple(row.values()) for row in client.invoke(query)] == expected


def test_one_sequence_sent_to_two_servers_at_once_is_taken_once(
    pair: tuple[Client, Client],
) -> None:
    query = pair[0].register("SELECT sequence FROM s")
    publisher = Publisher("both")
    for sequence in range(1, 31):
        one, two = at_once(pair, lambda client, n=sequence: publisher.publish(client, n))
        assert {one.duplicate, two.duplicate} == {True, False}
        assert (one.position, one.first_row_id) == (two.position, two.first_row_id)
    sent = sum(len(publisher.batch(sequence)) for sequence in range(1, 31))
    assert [client.invoke(query).row_count for client in pair] == [sent, sent]


def test_one_key_registered_on_two_servers_at_once_is_one_registration(
    pair: tuple[Client, Client],
) -> None:
    for number in range(30):
        text, key = f"SELECT place FROM s WHERE place > {number}", f"key{number}"
        one, two = at_once(pair, lambda client, t=text, k=key: client.register(t, key=k))
        assert one.handle == two.handle
        assert {one.created, two.created} == {True, False}
        assert one.position == two.position


def at_once(pair: tuple[Client, Client], work: Callable[[Client], T]) -> tuple[T, T]:
    barrier = threading.Barrier(2)

    def run(client: Client) -> T:
        barrier.wait()
        return work(client)

    with ThreadPoolExecutor(2) as pool:
        one, two = (pool.submit(run, client) for client in pair)
        return one.result(), two.result()
