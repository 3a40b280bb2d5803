"""SIGKILL of the engine at random moments under load: nothing lost, nothing twice, same ids."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pytest

from client_sdk import Client
from tests.support.system.processes import RunningStore
from tests.system.test_open_state import Tables

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(900)]

PAUSE = 0.02
MODULI = 7
MANY_ROWS = 60_000
MANY_QUERIES = 150


class Load:
    """A client that keeps publishing and registering. Row `n` of the stream holds the number n."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.rows = 0
        self.queries: dict[bytes, tuple[int, int]] = {}
        self.ending = threading.Event()

    def publish(self) -> None:
        dice = Random(1)
        with Client(self.target) as client:
            publisher = client.publisher("load")
            while not self.ending.wait(PAUSE):
                size = dice.randint(1, 60 if self.rows < MANY_ROWS else 3)
                batch = [{"n": self.rows + k, "t": "x" * 20} for k in range(size)]
                outcome = publisher.publish("s", batch)
                assert (outcome.first_row_id, outcome.duplicate) == (self.rows, False)
                self.rows += len(batch)

    def register(self) -> None:
        """Register a query; unregister one in three, and one for each beyond `MANY_QUERIES`."""
        dice = Random(2)
        with Client(self.target) as client:
            while not self.ending.wait(10 * PAUSE):
                remainder, least = dice.randrange(MODULI), dice.randrange(0, self.rows + 1)
                text = f"SELECT n, row_id FROM s WHERE n % {MODULI} = {remainder} AND n >= {least}"
                self.queries[client.register(text).handle] = remainder, least
                if dice.random() < 0.33 or len(self.queries) > MANY_QUERIES:
                    ended = dice.choice(list(self.queries))
                    client.unregister(ended)
                    del self.queries[ended]

    def check(self, client: Client) -> int:
        """Check every answer by arithmetic; return how many rows were computed for them."""
        computed = 0
        for handle, (remainder, least) in self.queries.items():
            answer = client.invoke(handle)
            numbers = np.arange(least, self.rows)
            expected = numbers[numbers % MODULI == remainder]
            for column in ("n", "row_id"):
                assert np.array_equal(answer.to_arrow().column(column).to_numpy(), expected)
            computed += answer.computed_rows
        return computed


def under_load(store: RunningStore, kills: int) -> Load:
    """Kill the engine repeatedly, during steps, its start and back-fill."""
    with store.client() as client:
        client.define("CREATE STREAM s (n BIGINT, t TEXT)")
    load = Load(store.targets[0])
    dice = Random(3)
    orphans: list[int] = []
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(load.publish), pool.submit(load.register)]
        try:
            for number in range(kills):
                engine = store.start_engine(ready=number % 4 != 3)
                load.ending.wait(dice.uniform(0.1, 2.5))
                _alive(running)
                orphans += engine.children()
                engine.kill()
            store.start_engine()
            load.ending.wait(0.5)
        finally:
            load.ending.set()
    _alive(running, ended=True)
    _wait_until_gone(orphans)
    return load


def _wait_until_gone(orphans: list[int]) -> None:
    """A JVM and its workers end with the engine that started them."""
    for _ in range(600):
        if not any(_runs(pid) for pid in orphans):
            return
        time.sleep(0.1)
    raise AssertionError(f"still there: {[pid for pid in orphans if _runs(pid)]}")


def _runs(pid: int) -> bool:
    """Return True if a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _alive(running: list[Future[None]], ended: bool = False) -> None:
    for future in running:
        assert ended or not future.done(), future.exception()
        if ended:
            future.result()


def check_everything(store: RunningStore, load: Load) -> None:
    with store.client() as client:
        load.check(client)
        store.wait_until_matched(client)
        assert client.stream("s").row_count == load.rows
        (stream_id,) = (stream.id for stream in client.streams())
    store.start_server()
    with store.client(-1) as client:
        assert load.check(client) == 0, "a server that knows only what the engine left"
    stem = Tables(store.store).stem(stream_id).sort_by("_row_id")
    assert stem.column("_row_id").to_pylist() == list(range(load.rows))
    assert stem.column("n").to_pylist() == list(range(load.rows))


def killed(folder: Path, kills: int) -> None:
    with RunningStore(folder) as store:
        store.start_server()
        check_everything(store, under_load(store, kills))


@pytest.mark.long
def test_three_kills_of_the_engine_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    killed(tmp_path, 3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_twenty_kills_of_the_engine_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    killed(tmp_path, 20)
