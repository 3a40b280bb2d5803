"""Back-ups of a store whose server and engine run as processes, under load, killed at random."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from client_sdk import Client
from psoup.store.backup.pins import PINS
from tests.support.system.processes import REPOSITORY, RunningStore
from tests.system.worked import WorkedAnswers

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(1800)]

STREAM = "CREATE STREAM s (n BIGINT, city TEXT, at TIMESTAMP) ORDERED BY at RETAIN 3650 DAYS"
# `:most` is the last row of the restored store: both stores answer as of it.
QUERIES = [
    "SELECT n, city FROM s WHERE n % 7 = 3 AND n <= {most}",
    "SELECT city, count(*) AS c, sum(n) AS total, max(n) AS m FROM s WHERE n <= {most} "
    "GROUP BY city ORDER BY city",
    "SELECT n FROM s WHERE n <= {most} ORDER BY n DESC LIMIT 10",
    "SELECT a.n, b.n AS other FROM s AS a JOIN s AS b ON a.n = b.n + 1 "
    "WHERE a.city = 'Rome' AND a.n <= {most} AND b.n <= {most}",
]
REGISTERED = "SELECT n, city FROM s WHERE n % 5 = {remainder}"
START = datetime(2026, 1, 1, tzinfo=UTC)
CITIES = ["Rome", "Oslo", "Lima"]


class Load:
    """A publisher of rows 0, 1, 2, … that repeats what was not acknowledged."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.rows = 0
        self.ending = threading.Event()

    def run(self) -> None:
        dice = Random(3)
        with Client(self.target) as client:
            publisher = client.publisher("load")
            while not self.ending.wait(0.01):
                numbers = range(self.rows, self.rows + dice.randint(1, 30))
                batch = [
                    {"n": n, "city": CITIES[n % 3], "at": START + timedelta(milliseconds=n)}
                    for n in numbers
                ]
                publisher.publish("s", batch)
                self.rows += len(batch)


@contextmanager
def loaded(store: RunningStore) -> Iterator[Load]:
    """A store under load, within the context."""
    target = store.start_server()
    store.start_engine("--grace", "60")
    with Client(target) as client:
        client.define(STREAM)
        for remainder in range(5):
            client.register(REGISTERED.format(remainder=remainder), key=f"r{remainder}")
    load = Load(target)
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(load.run)
        try:
            wait_until(lambda: load.rows > 0 or work.done())
            yield load
        finally:
            load.ending.set()
        work.result()


def wait_until(ready: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.005)


def psoup(*arguments: str | Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "psoup.cli", *map(str, arguments)]
    return subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, output = process.communicate(timeout=300)
    assert process.returncode == 0, output.decode()


def killed_back_ups(
    store: RunningStore, target: Path, kills: int, dice: Random, publish: Callable[[], None]
) -> int:
    """Begin back-ups and kill each, and beside the first and some others the engine; publish
    before each. Return how many had not ended before."""
    killed = 0
    for number in range(kills):
        publish()
        pins = store.store / PINS
        # The pin of a killed back-up stays, so the next one adds another.
        before = set(pins.glob("*.json"))
        process = psoup("backup", store.store, target)
        wait_until(lambda: process.poll() is not None or bool(set(pins.glob("*.json")) - before))  # noqa: B023
        time.sleep(dice.choice([0.0, 0.01, 0.03, 0.1]))
        process.send_signal(dice.choice([signal.SIGKILL, signal.SIGINT]))
        if (number == 0 or dice.random() < 0.3) and store.engine is not None:
            store.engine.kill()
            store.start_engine("--grace", "60", ready=False)
        process.communicate(timeout=300)
        killed += process.returncode != 0
    return killed


def compare(original: Client, worked: WorkedAnswers, folder: Path, acknowledged: int) -> int:
    """Compare the answers of the original and of the store restored in `folder`; return how many
    worked ones there were."""
    with RunningStore(folder) as second, Client(second.start_server()) as client:
        numbers = client.ask("SELECT n FROM s").to_arrow().column("n").to_pylist()
        most = len(numbers) - 1
        assert sorted(numbers) == list(range(len(numbers))) and len(numbers) >= acknowledged
        for text in QUERIES:
            query = text.format(most=most)
            restored, expected = (store.ask(query).to_arrow() for store in (client, original))
            assert restored.sort_by(_order(restored)).equals(expected.sort_by(_order(expected)))
        for remainder in range(5):
            answer = client.invoke(f"r{remainder}").to_arrow().column("n").to_pylist()
            assert sorted(answer) == list(range(remainder, len(numbers), 5))
        # It goes on from the row it has.
        client.publish("s", [{"n": -1, "city": "Rome", "at": START + timedelta(days=99)}])
        return worked.compare(second.targets[0])


def _order(table: object) -> list[tuple[str, str]]:
    names: list[str] = table.column_names  # type: ignore[attr-defined]
    return [(name, "ascending") for name in names]


def run(tmp_path: Path, kills: int, back_ups: int) -> None:
    dice, target = Random(5), tmp_path / "target"
    (tmp_path / "first").mkdir()
    with (
        RunningStore(tmp_path / "first") as first,
        loaded(first) as load,
        Client(first.targets[0]) as original,
        closing(WorkedAnswers(first.targets[0], kills)) as worked,
    ):
        killed = 0
        for number in range(back_ups):
            killed += killed_back_ups(first, target, kills // back_ups, dice, worked.publish)
            acknowledged = load.rows
            finish(psoup("backup", first.store, target, "--verify"))
            folder = tmp_path / f"restored-{number}"
            folder.mkdir()
            finish(psoup("restore", target, folder / "store"))
            if back_ups > 1:
                finish(psoup("check", folder / "store", "--all"))
            count = compare(original, worked, folder, acknowledged)
        assert count == worked.answer_count
        assert killed >= kills // 2


@pytest.mark.long  # tests/engine/test_backup.py has a short one, without processes
def test_a_back_up_under_load_answers_as_the_original(tmp_path: Path) -> None:
    run(tmp_path, kills=1, back_ups=1)


@pytest.mark.long
def test_twenty_kills_of_back_up_and_engine(tmp_path: Path) -> None:
    run(tmp_path, kills=20, back_ups=2)
