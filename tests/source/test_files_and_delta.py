"""Folders and Delta tables as sources: each row once, whatever is killed and however many run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from client_sdk import Client
from tests.source.conftest import Sources
from tests.support.server.process import ServerProcess

deltalake = pytest.importorskip("deltalake")
pytestmark = pytest.mark.process


def numbers(client: Client, column: str = "k") -> list[int]:
    return sorted(row[column] for row in client.ask(f"SELECT {column} FROM s"))


def drop_file(folder: Path, name: str, first: int, last: int) -> None:
    """Write a file beside its place, and rename it when it is whole."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text("".join(f'{{"k": {k}, "v": {{"w": "x{k}"}}}}\n' for k in range(first, last)))
    os.utime(hidden, (1_700_000_000, 1_700_000_000 + first))
    os.rename(hidden, folder / name)


FILES = """
[sources.doors]
files = { pattern = "drop/*.jsonl", after = "move:done" }
stream = "s"
create = "CREATE STREAM s (k BIGINT, w TEXT)"
columns = { w = "v.w" }
"""


def test_files_are_read_once_and_moved(sources: Sources) -> None:
    sources.write(FILES)
    drop_file(sources.folder / "drop", "a.jsonl", 0, 500)
    process = sources.start()
    sources.wait_for(lambda: len(list((sources.folder / "done").glob("*"))) == 1)
    drop_file(sources.folder / "drop", "b.jsonl", 500, 700)
    sources.wait_for(lambda: len(list((sources.folder / "done").glob("*"))) == 2)
    assert process.stop() == 143
    assert numbers(sources.client) == list(range(700))
    answer = list(sources.client.ask("SELECT w FROM s WHERE k = 3"))
    assert answer == [{"w": "x3"}]
    status = sources.psoup("source", "status", str(sources.file), "--json")
    assert status.wait() == 0
    document = json.loads(status.text())
    assert len(document["doors"]["publishers"]) == 2


def test_a_bad_row_stops_the_source_and_skip_is_the_way_on(sources: Sources) -> None:
    path = sources.folder / "t"
    table = pa.table({"k": [1, 2, 3], "v": ["1", "x", "3"]})
    deltalake.write_deltalake(str(path), table)
    sources.client.define("CREATE STREAM s (k BIGINT, at TIMESTAMP) ORDERED BY at AHEAD 1 HOUR")
    sources.write(
        f'[sources.t]\ndelta = {{ table = "{path}" }}\nstream = "s"\ncolumns = {{ at = "v" }}\n'
    )
    process = sources.start()
    assert process.wait() == 2
    assert "can't go into at TIMESTAMP" in process.text()


CHANGES = """
[sources.t]
delta = { table = "t", changes = true }
stream = "s"
create = "CREATE STREAM s (k BIGINT, v TEXT) KEY (k)"
"""


def write(path: Path, first: int, last: int, **options: object) -> None:
    table = pa.table({"k": range(first, last), "v": [f"v{k}" for k in range(first, last)]})
    deltalake.write_deltalake(str(path), table, **options)


def test_a_delta_table_and_its_changes(sources: Sources) -> None:
    path = sources.folder / "t"
    write(path, 0, 50, configuration={"delta.enableChangeDataFeed": "true"})
    sources.write(CHANGES)
    process = sources.start()
    table = deltalake.DeltaTable(str(path))
    table.update(predicate="k = 7", updates={"v": "'seven'"})
    table.delete("k >= 40")
    table.update(predicate="k = 5", updates={"k": "105"})
    table.optimize.compact()
    write(path, 200, 210, mode="append")

    def current() -> list[tuple[int, str]]:
        try:
            return sorted(tuple(row.values()) for row in sources.client.ask("SELECT k, v FROM s"))
        except Exception:
            return []

    expected = sorted(
        tuple(row.values())
        for row in deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    )
    sources.wait_for(lambda: current() == expected)
    assert process.stop() == 143
    # Without its mark, a source does not begin with a stream that has rows.
    names = [record.name for record in sources.client.publishers()]
    sources.client.forget_publishers(names)
    again = sources.start()
    assert again.wait() == 1 and "--from" in again.text()


@pytest.mark.long
def test_kills_and_a_second_copy(own_server: list[ServerProcess], tmp_path: Path) -> None:
    """Source and server are killed while a second copy runs: every row is there once."""
    sources = Sources(tmp_path, own_server[-1].address, "main")
    path, port = tmp_path / "t", own_server[-1].address.rpartition(":")[2]
    sources.write(
        FILES + '[sources.t]\ndelta = { table = "t" }\nstream = "d"\n'
        'create = "CREATE STREAM d (k BIGINT, v TEXT)"\n'
    )
    write(path, 0, 10)
    count, processes = 10, [sources.start("--standby"), sources.start("--standby")]
    try:
        for turn in range(8):
            for _ in range(5):
                write(path, count, count + 2000, mode="append")
                drop_file(tmp_path / "drop", f"{count}.jsonl", count, count + 2000)
                count += 2000
                time.sleep(0.1)
            if turn % 4 == 3:
                own_server[-1].kill()
                own_server.append(ServerProcess(tmp_path / "store", "--port", port))
            else:
                processes[turn % 2].kill()
                processes[turn % 2] = sources.start("--standby")

        def complete() -> bool:
            streams = {stream.name: stream.row_count for stream in sources.client.streams()}
            return streams.get("d", 0) >= count and streams.get("s", 0) >= count - 10

        sources.wait_for(complete, 240)
        time.sleep(2.0)
        rows = sorted(row["k"] for row in sources.client.ask("SELECT k FROM d"))
        assert rows == list(range(count))
        assert numbers(sources.client) == list(range(10, count))
    finally:
        sources.close()


@pytest.mark.long
def test_a_second_copy_without_standby_stops(sources: Sources) -> None:
    path = sources.folder / "t"
    write(path, 0, 10)
    sources.write(
        '[sources.t]\ndelta = { table = "t" }\nstream = "s"\n'
        'create = "CREATE STREAM s (k BIGINT, v TEXT)"\n'
    )
    processes = [sources.start(), sources.start()]
    count = 10
    deadline = time.monotonic() + 90
    while all(process.alive for process in processes) and time.monotonic() < deadline:
        write(path, count, count + 1, mode="append")
        count += 1
        time.sleep(0.3)
    (stopped,) = [process for process in processes if not process.alive]
    assert stopped.wait() == 4 and "another process runs this source" in stopped.text()
    sources.wait_for(lambda: sources.client.stream("s").row_count >= count)
    assert numbers(sources.client) == list(range(count))
