"""PostgreSQL tables as sources, with a real server and wal2json."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from client_sdk import NotFound
from psoup.source.connectors.postgres import slot as slot_module
from psoup.source.connectors.postgres.session import connect
from psoup.source.connectors.postgres.slot import SlotWatch
from tests.source.conftest import Sources
from tests.support.server.process import ServerProcess
from tests.support.source.postgresql import PostgresServer, postgres_server

pytestmark = [pytest.mark.process, pytest.mark.long]

TABLE = """
CREATE TABLE orders (id integer PRIMARY KEY, price numeric(12, 2), note text, at timestamptz,
                     raw bytea, tags integer[]);
ALTER TABLE orders REPLICA IDENTITY FULL;
"""
STREAM = (
    "CREATE STREAM s (id BIGINT, price DECIMAL(12, 2), note TEXT, at TIMESTAMP, raw TEXT, "
    "tags TEXT, place TEXT) KEY (id)"
)
SOURCE = f"""
[sources.orders]
postgres = {{ dsn_file = "dsn", slot = "psoup_orders", table = "public.orders" }}
stream = "s"
create = "{STREAM}"
columns = {{ place = "$lsn" }}
"""
COLUMNS = "id, price, note, at, raw, tags"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres(server: PostgresServer, sources: Sources) -> Iterator[Any]:
    (sources.folder / "dsn").write_text(server.dsn)
    connection = server.connect()
    cursor = connection.cursor()
    cursor.execute(TABLE)
    yield cursor
    sources.close()
    connection.close()
    # The server may have been killed.
    connection = server.connect()
    clean(connection.cursor())
    connection.close()


def clean(cursor: Any) -> None:
    clean_slots(cursor)
    cursor.execute("DROP TABLE orders")


def clean_slots(cursor: Any) -> None:
    """Drop the slots, as soon as their readers are gone."""
    deadline = time.monotonic() + 30
    while True:
        try:
            cursor.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
            break
        except Exception:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def stored(sources: Sources) -> list[tuple[Any, ...]]:
    """Return the current rows of the stream, as texts of PostgreSQL."""
    try:
        rows = sources.client.ask("SELECT id, price, note, raw, tags FROM s ORDER BY id")
    except Exception:
        return []
    return [tuple(row.values()) for row in rows]


def table(cursor: Any) -> list[tuple[Any, ...]]:
    cursor.execute("SELECT id, price, note, raw::text, tags::text FROM orders ORDER BY id")
    return [tuple(row) for row in cursor.fetchall()]


def insert(cursor: Any, first: int, last: int) -> None:
    cursor.execute(
        "INSERT INTO orders SELECT i, i + 0.25, 'n' || i, now(), '\\xdead', ARRAY[i, 2] "
        "FROM generate_series(%s, %s) i",
        (first, last - 1),
    )


def test_a_snapshot_then_every_change(postgres: Any, sources: Sources) -> None:
    insert(postgres, 0, 25_000)
    sources.write(SOURCE)
    check = sources.psoup("source", "check", str(sources.file))
    assert check.wait() == 0, check.text()
    process = sources.start()
    insert(postgres, 30_000, 30_100)
    large = "".join(random.Random(7).choices("abcdefgh", k=20_000))
    postgres.execute("UPDATE orders SET note = %s WHERE id = 7", (large,))
    # The large value is not in the log of this update; the identity has it.
    postgres.execute("UPDATE orders SET price = 1.5 WHERE id = 7")
    postgres.execute("UPDATE orders SET id = -1 WHERE id = 8")
    postgres.execute("DELETE FROM orders WHERE id BETWEEN 100 AND 12000")
    postgres.execute("BEGIN; INSERT INTO orders (id) VALUES (77777); ROLLBACK")
    sources.wait_for(lambda: stored(sources) == table(postgres))
    status = sources.psoup("source", "status", str(sources.file))
    assert status.wait() == 0 and "bytes of WAL kept" in status.text()
    # A second copy waits at the lock, and takes over.
    standby = sources.start("--standby")
    standby.wait_for("another process reads slot")
    process.kill()
    insert(postgres, 40_000, 40_010)
    sources.wait_for(lambda: stored(sources) == table(postgres))
    # A slot that is gone: the table is read again, and what it lacks is deleted.
    assert standby.stop() == 143
    postgres.execute("SELECT pg_drop_replication_slot('psoup_orders')")
    postgres.execute("DELETE FROM orders WHERE id > 20000")
    last = sources.start()
    sources.wait_for(lambda: stored(sources) == table(postgres))
    # TRUNCATE stops the source.
    postgres.execute("TRUNCATE orders")
    assert last.wait() == 1 and "truncated" in last.text()
    # No other place is there to go on at; the table is read again.
    for place, code in (("latest", 2), ('{"phase": "wal", "lsn": "0/0"}', 2), ("earliest", 0)):
        skip = sources.psoup("source", "skip", str(sources.file), "orders", "--to", place)
        assert skip.wait() == code, skip.text()
    insert(postgres, 1, 3)
    again = sources.start()
    sources.wait_for(lambda: stored(sources) == table(postgres))
    assert again.stop() == 143
    postgres.execute("TRUNCATE orders")
    sources.write(SOURCE.replace('slot = "', 'on_truncate = "delete", slot = "'))
    sources.start()
    insert(postgres, 5, 8)
    sources.wait_for(lambda: stored(sources) == table(postgres))


def test_keys_whose_text_has_several_forms(postgres: Any, sources: Sources) -> None:
    """The snapshot and the log write the same keys, and a second snapshot deletes none of them."""
    postgres.execute(
        "CREATE TABLE visits (code char(4), amount numeric, at timestamp, host inet, note text, "
        "ok boolean, PRIMARY KEY (code, amount, at, host))"
    )
    postgres.execute("ALTER TABLE visits REPLICA IDENTITY FULL")
    try:
        follow_visits(postgres, sources)
    finally:
        sources.close()
        postgres.execute("DROP TABLE visits")


def follow_visits(postgres: Any, sources: Sources) -> None:
    columns = "code TEXT, amount DECIMAL(12, 2), at TIMESTAMP, host TEXT, note TEXT, ok BOOLEAN"
    lines = (
        'postgres = { dsn_file = "dsn", slot = "psoup_visits", table = "public.visits" }',
        'stream = "s"',
        f'create = "CREATE STREAM s ({columns}) KEY (code, amount, at, host)"',
    )
    sources.write("\n".join(["[sources.visits]", *lines]))

    def insert(code: str, amount: str, host: str = "10.0.0.1") -> None:
        postgres.execute(
            "INSERT INTO visits VALUES (%s, %s, '2026-01-05 09:00:00.5', %s, 'new', true)",
            (code, amount, host),
        )

    def visits() -> list[tuple[Any, ...]]:
        try:
            rows = sources.client.ask("SELECT code, amount, host, note, ok FROM s")
        except NotFound:
            return []
        return sorted(tuple(row.values()) for row in rows)

    insert("a", "5")
    insert("b", "5.5", "10.0.0.0/8")
    insert("gone", "7.00")
    process = sources.start()
    rows: list[tuple[Any, ...]] = [
        ("a   ", Decimal("5.00"), "10.0.0.1", "new", True),
        ("b   ", Decimal("5.50"), "10.0.0.0/8", "new", True),
    ]
    sources.wait_for(lambda: visits()[:2] == rows)
    insert("c", "1")
    postgres.execute("UPDATE visits SET note = NULL, ok = false")
    rows = [(code, amount, host, None, False) for code, amount, host, *_ in rows]
    rows += [
        ("c   ", Decimal("1.00"), "10.0.0.1", None, False),
        ("gone", Decimal("7.00"), "10.0.0.1", None, False),
    ]
    sources.wait_for(lambda: visits() == rows)
    process.kill()
    postgres.execute("DELETE FROM visits WHERE code = 'gone'")
    clean_slots(postgres)
    sources.start()
    insert("d", "2")
    rows[3] = ("d   ", Decimal("2.00"), "10.0.0.1", "new", True)
    sources.wait_for(lambda: visits() == rows)


def test_a_slot_that_keeps_too_much_is_dropped_under_its_reader(
    server: PostgresServer, postgres: Any, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the store is away: the reader is connected, and confirms nothing."""
    monkeypatch.setattr(slot_module, "LOOK_SECONDS", 0.05)
    dsn_file = sources.folder / "dsn"
    replication = connect(dsn_file, replication=True)
    reader = replication.cursor()
    reader.create_replication_slot("busy", output_plugin="wal2json")
    reader.start_replication(slot_name="busy", decode=True)
    watch, *lenient = (SlotWatch(dsn_file, "busy", most) for most in (1_000_000, 10**12, None))
    try:
        insert(postgres, 0, 20_000)
        sources.wait_for(lambda: bool(watch.problem))
    finally:
        for item in (watch, *lenient):
            item.close()
    assert "slot busy kept" in watch.problem
    assert [item.problem for item in lenient] == ["", ""]
    postgres.execute("SELECT count(*) FROM pg_replication_slots")
    assert postgres.fetchone() == (0,)
    with pytest.raises(psycopg2.Error):
        while True:
            reader.read_message()
    replication.close()


def test_a_server_that_is_killed_and_a_table_that_is_altered(
    server: PostgresServer, postgres: Any, sources: Sources
) -> None:
    columns = 'columns = { place = "$commit_time" }'
    sources.write(SOURCE.replace('columns = { place = "$lsn" }', columns))
    insert(postgres, 0, 5)
    source = sources.start()
    sources.wait_for(lambda: stored(sources) == table(postgres))
    insert(postgres, 5, 2000)
    server.kill()
    server.start()
    cursor = server.connect().cursor()
    insert(cursor, 2000, 2010)
    cursor.execute("UPDATE orders SET price = price + 1 WHERE id BETWEEN 1000 AND 2004")
    sources.wait_for(lambda: stored(sources) == table(cursor))
    times = [row["place"] for row in sources.client.ask("SELECT place FROM s ORDER BY row_id")]
    assert times == sorted(times) and None not in times
    # A new column is left out; one with another type stops the source before its first row.
    cursor.execute("ALTER TABLE orders ADD COLUMN extra integer DEFAULT 7")
    insert(cursor, 3000, 3001)
    source.wait_for("column extra is new, and left out")
    sources.wait_for(lambda: stored(sources) == table(cursor))
    before = table(cursor)
    cursor.execute("ALTER TABLE orders ALTER COLUMN tags TYPE text USING tags::text")
    insert_plain = "INSERT INTO orders (id, tags) VALUES (%s, 'x')"
    cursor.execute(insert_plain, (4000,))
    assert (
        source.wait() == 1 and "column tags of table public.orders was integer[]" in source.text()
    )
    assert stored(sources) == before
    source = sources.start("--standby")
    cursor.execute(insert_plain, (4001,))
    sources.wait_for(lambda: stored(sources) == table(cursor))
    cursor.execute("ALTER TABLE orders ALTER COLUMN price TYPE text")
    cursor.execute(insert_plain, (4002,))
    assert source.wait() == 1 and "column price" in source.text()
    source = sources.start()
    assert source.wait() == 2 and "column price is text" in source.text(), source.text()


def test_what_check_refuses(postgres: Any, sources: Sources) -> None:
    postgres.execute("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    sources.write(SOURCE)
    check = sources.psoup("source", "check", str(sources.file))
    assert check.wait() == 2 and "REPLICA IDENTITY FULL" in check.text()
    sources.client.define("CREATE STREAM t (note BIGINT, id BIGINT) KEY (id)")
    sources.write(SOURCE.replace('"s"', '"t"').replace('columns = { place = "$lsn" }', ""))
    check = sources.psoup("source", "check", str(sources.file))
    assert check.wait() == 2 and "column note is text" in check.text()
    secret = SOURCE.replace('dsn_file = "dsn"', 'dsn = "postgres://u:tiger@h/d"')
    sources.write(secret)
    check = sources.psoup("source", "check", str(sources.file))
    assert check.wait() == 2 and "dsn_file" in check.text() and "tiger" not in check.text()
    (sources.folder / "dsn").write_text("host=/nowhere user=u password=tiger")
    sources.write(SOURCE)
    check = sources.psoup("source", "check", str(sources.file))
    assert check.wait() == 75 and "tiger" not in check.text()


def test_kills_under_load(
    server: PostgresServer, own_server: list[ServerProcess], tmp_path: Path
) -> None:
    """Sources and the server are killed while the table changes; at the end the stream is it."""
    sources = Sources(tmp_path, own_server[-1].address, "main")
    port = own_server[-1].address.rpartition(":")[2]
    (tmp_path / "dsn").write_text(server.dsn)
    connection = server.connect()
    cursor = connection.cursor()
    cursor.execute(TABLE)
    insert(cursor, 0, 3000)
    sources.write(SOURCE)
    stop = threading.Event()
    loads = [threading.Thread(target=load, args=(server, seed, stop)) for seed in range(2)]
    try:
        for thread in loads:
            thread.start()
        processes = [sources.start("--standby"), sources.start("--standby")]
        for turn in range(12):
            time.sleep(1.0)
            if turn % 4 == 3:
                own_server[-1].kill()
                own_server.append(ServerProcess(tmp_path / "store", "--port", port))
            else:
                processes[turn % 2].kill()
                processes[turn % 2] = sources.start("--standby")
        stop.set()
        for thread in loads:
            thread.join()
        sources.wait_for(lambda: stored(sources) == table(cursor), 180)
    finally:
        stop.set()
        sources.close()
        clean(cursor)
        connection.close()


def load(server: PostgresServer, seed: int, stop: threading.Event) -> None:
    """Change the table at random, in transactions that overlap with those of another session."""
    chance = random.Random(seed)
    connection = server.connect()
    connection.autocommit = False
    cursor = connection.cursor()
    while not stop.is_set():
        try:
            for _ in range(chance.randint(1, 20)):
                key, next_key = chance.randrange(3500), chance.randrange(3500)
                match chance.randrange(4):
                    case 0:
                        cursor.execute(
                            "INSERT INTO orders (id, price, note) VALUES (%s, 1, 'x') "
                            "ON CONFLICT DO NOTHING",
                            (key,),
                        )
                    case 1:
                        cursor.execute("UPDATE orders SET price = price + 1 WHERE id = %s", (key,))
                    case 2:
                        cursor.execute("DELETE FROM orders WHERE id = %s", (key,))
                    case _:
                        cursor.execute("UPDATE orders SET id = %s WHERE id = %s", (next_key, key))
            if chance.random() < 0.1:
                connection.rollback()
            connection.commit()
        except Exception:
            connection.rollback()
        time.sleep(0.01)
    connection.close()
