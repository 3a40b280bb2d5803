"""Sources beside their other sides: a real broker of Kafka, a real PostgreSQL, an engine, a
receiver of changes.

Delays are times of the clock here, since they are waits; `sources` has the processor time.
"""

from __future__ import annotations

import asyncio
import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from benchmarks.report import Report
from benchmarks.source_rows import STREAM, json_row, processor_seconds
from client_sdk import Client, Pull, watch_pull
from psoup.source.connectors.partition import Context
from psoup.source.connectors.registry import make_connector
from psoup.source.feeding.feed import Feed
from psoup.source.feeding.report import Report as FeedReport
from psoup.source.settings import SourceSettings, StoreSettings
from tests.support.source.broker import KafkaBroker, kafka_broker
from tests.support.source.postgresql import PostgresServer, postgres_server
from tests.support.system.processes import RunningStore

AIM_ROWS, AIM_VISIBLE_SECONDS, AIM_IDLE_SHARE, AIM_WEBHOOK_SECONDS = 20_000, 0.4, 0.01, 1.0
_WAIT_SECONDS = 120.0
TOPIC = "trades"


def measure(report: Report, folder: Path, quick: bool) -> None:
    """Add what Kafka, PostgreSQL and a receiver of changes take; say so if one is not here."""
    folder.mkdir()
    with RunningStore(folder) as store:
        target = store.start_server("--wait", "300")
        store.start_engine()
        with Client(target) as client:
            _measure_webhook(report, folder, client, 10 if quick else 40)
            with _if_present(report, "Kafka"), kafka_broker(folder / "broker") as broker:
                _measure_kafka(report, store, client, broker, quick)
            with _if_present(report, "PostgreSQL"), postgres_server() as server:
                rows = 20_000 if quick else 200_000
                _measure_postgres(report, folder, store.targets[0], client, server, rows)


@contextmanager
def _if_present(report: Report, what: str) -> Iterator[None]:
    """Go on without a part that is not on this machine, and report so."""
    try:
        yield
    except BaseException as error:
        # The fixture of the part skips a test, which is no Exception.
        if type(error).__name__ != "Skipped":
            raise
        report.add(f"{what}: not measured, {error}", 0, "rows/s")


# ---- Kafka


def _measure_kafka(
    report: Report, store: RunningStore, client: Client, broker: KafkaBroker, quick: bool
) -> None:
    client.define(STREAM)
    rows = 50_000 if quick else 400_000
    broker.create_topic(TOPIC)
    _produce(broker, range(rows))
    assert store.engine is not None
    processes = {
        "the server": [store.servers[0].pid],
        "the engine": [store.engine.pid, *store.engine.children()],
    }
    used = {name: processor_seconds(pids) for name, pids in processes.items()}
    used_seconds, began = time.process_time(), time.monotonic()
    place = {"servers": broker.servers, "topic": TOPIC}
    settings = SourceSettings(
        TOPIC, "kafka", place, "s", Path(), store=StoreSettings(target=store.targets[0])
    )
    with _feeding(settings) as progress:
        _wait(lambda: progress.rows >= rows)
        read_seconds, used_seconds = time.monotonic() - began, time.process_time() - used_seconds
        _wait(lambda: client.status().behind_rows == 0)
        seconds = time.monotonic() - began
        rate = rows / seconds
        aim = f"≥ {AIM_ROWS:,} rows/s"
        report.add(
            "Kafka, one partition of JSON, until in an epoch: by the clock",
            rate,
            "rows/s",
            aim=aim,
            met=rate >= AIM_ROWS,
        )
        report.add("the same until published: by the clock", rows / read_seconds, "rows/s")
        report.add("the source by its processor time", rows / used_seconds, "rows/s")
        for name, pids in processes.items():
            spent = processor_seconds(pids) - used[name]
            report.add(f"{name} by its processor time", rows / spent, "rows/s")
        _measure_visible(report, client, broker, rows, 10 if quick else 40)
        used_seconds, pause = time.process_time(), 5.0 if quick else 30.0
        time.sleep(pause)
        share = (time.process_time() - used_seconds) / pause
        report.add(
            "an idle source of Kafka",
            100 * share,
            "% of a core",
            aim="≤ 1 %",
            met=share <= AIM_IDLE_SHARE,
        )


def _measure_visible(
    report: Report, client: Client, broker: KafkaBroker, rows: int, count: int
) -> None:
    """Add how long a message takes to the answer of a query."""
    seconds = []
    for number in range(count):
        _produce(broker, [rows + number])
        began = time.monotonic()
        _wait(partial(_has_row, client, rows + number), 0.005)
        seconds.append(time.monotonic() - began)
    _add_delay(report, "Kafka: from a message to an answer", seconds, AIM_VISIBLE_SECONDS)


def _has_row(client: Client, size: int) -> bool:
    return len(client.ask("SELECT size FROM s WHERE size = :size", parameters={"size": size})) > 0


@contextmanager
def _feeding(settings: SourceSettings) -> Iterator[FeedReport]:
    """Run a source of one partition in a thread of its own; yield what it reports."""
    report, stopping = FeedReport(settings.name), asyncio.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(
        target=loop.run_until_complete, args=(_feed(settings, report, stopping),)
    )
    thread.start()
    try:
        yield report
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


async def _feed(settings: SourceSettings, report: FeedReport, stopping: asyncio.Event) -> None:
    async with settings.store.client() as client:
        stream = await client.stream(settings.stream)
        connector = make_connector(Context(settings, stream, client))
        (partition,) = await asyncio.to_thread(connector.partitions, {})
        await Feed(
            client,
            stream,
            partition.publisher,
            partition.open_reader,
            begin=partial(partition.begin, "earliest"),
            report=report,
            stopping=stopping,
        ).run()


def _produce(broker: KafkaBroker, numbers: Iterable[int]) -> None:
    producer = broker.producer(linger_ms=0)
    for number in numbers:
        content = json_row(number).encode()
        while True:
            try:
                producer.produce(TOPIC, content, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0


# ---- PostgreSQL


def _measure_postgres(
    report: Report, folder: Path, target: str, client: Client, server: PostgresServer, rows: int
) -> None:
    """Add how fast a table is read, and then its log: half of the rows each."""
    (folder / "dsn").write_text(server.dsn)
    client.define("CREATE STREAM orders (id BIGINT, price DECIMAL(12, 2), note TEXT) KEY (id)")
    connection = server.connect()
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE orders (id bigint PRIMARY KEY, price numeric(12, 2), note text)")
    cursor.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    place = {"dsn_file": "dsn", "slot": "psoup", "table": "public.orders"}
    settings = SourceSettings(
        "orders", "postgres", place, "orders", folder, store=StoreSettings(target=target)
    )
    half = rows // 2
    _insert(cursor, 0, half)
    with _feeding(settings) as progress:
        for what, end in (("a table", half), ("the log", 2 * half)):
            used_seconds, began = time.process_time(), time.monotonic()
            _wait(partial(_has_read, progress, end))
            rate = half / (time.monotonic() - began)
            report.add(f"PostgreSQL, {what} until published: by the clock", rate, "rows/s")
            used_seconds = time.process_time() - used_seconds
            report.add("the source by its processor time", half / used_seconds, "rows/s")
            if end == half:
                # In transactions of many rows, all of which the log has before they are read.
                _insert(cursor, half, 2 * half)
    connection.close()


def _has_read(progress: FeedReport, rows: int) -> bool:
    return progress.rows >= rows and progress.mark.get("phase") == "wal"


def _insert(cursor: Any, first: int, last: int) -> None:
    cursor.execute(
        "INSERT INTO orders SELECT i, i %% 997 / 4.0, 'note ' || i FROM generate_series(%s, %s) i",
        (first, last - 1),
    )


# ---- changes of an answer


def _measure_webhook(report: Report, folder: Path, client: Client, count: int) -> None:
    """Add how long a published row takes to a receiver of the changes of an answer."""
    client.define("CREATE STREAM rooms (room TEXT, temp DOUBLE) KEY (room)")
    posts = queue.Queue[float]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            posts.put(time.monotonic())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    pull = Pull("hot", folder / "hot.csv", sql="SELECT * FROM rooms", changes_to=url)
    ending = threading.Event()
    pulls = threading.Thread(target=_watch, args=(client, pull, ending))
    pulls.start()
    seconds = []
    for number in range(count + 1):
        time.sleep(0.3)  # long enough for the pull to wait again
        began = time.monotonic()
        client.publish("rooms", [{"room": "a", "temp": float(number)}])
        seconds.append(posts.get(timeout=_WAIT_SECONDS) - began)
    ending.set()
    client.publish("rooms", [{"room": "a", "temp": -1.0}])
    pulls.join()
    server.shutdown()
    # The first one also waits for the registration.
    _add_delay(report, "from a row to the receiver of a webhook", seconds[1:], AIM_WEBHOOK_SECONDS)


def _watch(client: Client, pull: Pull, ending: threading.Event) -> None:
    for _ in watch_pull(client, pull):
        if ending.is_set():
            return


def _add_delay(report: Report, what: str, seconds: list[float], aim: float) -> None:
    middle = statistics.median(seconds)
    text = f"≤ {1000 * aim:g} ms"
    report.add(f"{what}, p50", 1000 * middle, "ms", aim=text, met=middle <= aim)


def _wait(ready: Callable[[], bool], pause: float = 0.02) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(pause)
