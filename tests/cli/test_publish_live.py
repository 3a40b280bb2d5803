"""Pipes, folders, patterns, other encodings, and files that are followed."""

from __future__ import annotations

import contextlib
import gzip
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from client_sdk import Client, MockTransport
from tests.cli.conftest import TRADES, Run

HEADER = "at,symbol,price,size\n"


@pytest.fixture(autouse=True)
def trades(run: Run) -> None:
    run("stream", "create", TRADES)


def sizes(client: Client) -> list[int]:
    return sorted(row["size"] for row in client.ask("SELECT size FROM trades"))


def lines(first: int, last: int) -> str:
    return "".join(f"2026-01-05 09:00:00,IBM,1.5,{n}\n" for n in range(first, last))


def pipe(path: Path, content: bytes) -> str:
    """Make a FIFO that a thread writes this to."""
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb") as sink, contextlib.suppress(BrokenPipeError):
            sink.write(content)

    threading.Thread(target=write, daemon=True).start()
    return str(path)


def test_a_fifo_is_published_to_its_end(run: Run, client: Client, tmp_path: Path) -> None:
    name = pipe(tmp_path / "in", (HEADER + lines(0, 30_000)).encode())
    assert "30,000 rows in trades" in run("publish", "trades", name, "--format", "csv").stderr
    assert sizes(client) == list(range(30_000))


def test_each_run_of_a_pipe_publishes_it_again(run: Run, client: Client, tmp_path: Path) -> None:
    for number in range(2):
        name = pipe(tmp_path / f"in{number}.csv", (HEADER + lines(0, 3)).encode())
        run("publish", "trades", name)
    assert sizes(client) == [0, 0, 1, 1, 2, 2]


def test_a_named_pipe_goes_on_by_the_count_of_rows(
    run: Run, client: Client, tmp_path: Path
) -> None:
    """A bad line counts, too: the second input is the first one and more."""
    first = HEADER + lines(0, 3) + "bad\n" + lines(3, 5)
    for number, content in enumerate([first, first, first + lines(5, 8)]):
        name = pipe(tmp_path / f"in{number}", content.encode())
        options = ["--format", "csv", "--publisher", "meter", "--skip-bad"]
        run("publish", "trades", name, *options)
    assert sizes(client) == list(range(8))
    short = pipe(tmp_path / "short", (HEADER + lines(0, 2)).encode())
    message = run("publish", "trades", short, "--format", "csv", "--publisher", "meter", code=1)
    assert "not the one that was read before" in message.stderr


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_bad_line_stops_a_pipe_before_it(
    run: Run, client: Client, tmp_path: Path, place: int
) -> None:
    content = HEADER + lines(0, place) + "2026-01-05,IBM,cheap,9\n" + lines(place, 4)
    name = pipe(tmp_path / "in.csv", content.encode())
    messages = run("publish", "trades", name, code=1).stderr
    assert f"line {place + 2}, price: 'cheap' is not DOUBLE" in messages
    assert sizes(client) == list(range(place))
    name = pipe(tmp_path / "again.csv", content.encode())
    messages = run("publish", "trades", name, "--skip-bad").stderr
    assert "4 rows in trades, 1 bad line skipped" in messages


def test_a_packed_pipe_and_one_that_is_cut(run: Run, client: Client, tmp_path: Path) -> None:
    packed = gzip.compress((HEADER + lines(0, 2000)).encode())
    run("publish", "trades", pipe(tmp_path / "in.csv", packed))
    assert sizes(client) == list(range(2000))
    name = pipe(tmp_path / "cut.csv", packed[:-2000])
    assert "it is cut" in run("publish", "trades", name, code=2).stderr


def test_arrow_in_a_pipe(run: Run, client: Client, tmp_path: Path) -> None:
    moment = datetime(2026, 1, 5, tzinfo=UTC)
    table = pa.table(
        {
            "at": pa.array([moment] * 500),
            "symbol": ["IBM"] * 500,
            "price": [1.5] * 500,
            "size": range(500),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    content = sink.getvalue().to_pybytes()
    run("publish", "trades", pipe(tmp_path / "in", content), "--format", "arrow")
    assert sizes(client) == list(range(500))
    message = run(
        "publish", "trades", pipe(tmp_path / "cut", content[:-300]), "--format", "arrow", code=2
    )
    assert "can't be read as Arrow" in message.stderr
    # What was read whole before the cut is in the store, as rows before a bad line are.
    assert sizes(client) == sorted([*range(500), *range(400)])
    (tmp_path / "day.arrows").write_bytes(content)
    run("publish", "trades", str(tmp_path / "day.arrows"))
    with pa.ipc.new_file(str(tmp_path / "day.arrow"), table.schema) as file:
        file.write_table(table)
    run("publish", "trades", str(tmp_path / "day.arrow"))
    assert len(sizes(client)) == 900 + 2 * 500


def test_what_a_pipe_needs(run: Run, tmp_path: Path) -> None:
    assert "needs --format" in run("publish", "trades", "-", code=2).stderr
    assert "--follow needs a file" in run("publish", "trades", "-", "--follow", code=2).stderr
    os.mkfifo(tmp_path / "in")
    (tmp_path / "day.csv").write_text(HEADER)
    both = [str(tmp_path / "in"), str(tmp_path / "day.csv")]
    assert "go alone" in run("publish", "trades", *both, code=2).stderr
    delimiter = run("publish", "trades", both[1], "--delimiter", ";;", code=2)
    assert "one character" in delimiter.stderr


def test_folders_and_patterns(run: Run, client: Client, tmp_path: Path) -> None:
    for number, name in enumerate(["a.csv", "b.csv", "c.txt", ".d.csv"]):
        (tmp_path / name).write_text(HEADER + lines(number, number + 1))
    run("publish", "trades", str(tmp_path))
    assert sizes(client) == [0, 1]
    run("publish", "trades", str(tmp_path / "*.txt"), "--format", "csv")
    assert sizes(client) == [0, 1, 2]
    assert "matches no file" in run("publish", "trades", str(tmp_path / "*.x"), code=2).stderr
    assert "does not exist" in run("publish", "trades", str(tmp_path / "no.csv"), code=2).stderr
    (tmp_path / "empty").mkdir()
    assert "has no file" in run("publish", "trades", str(tmp_path / "empty"), code=2).stderr
    pair = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert "for one file" in run("publish", "trades", *pair, "--publisher", "x", code=2).stderr


def test_a_bad_line_of_any_file_publishes_nothing(run: Run, client: Client, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER + lines(0, 1))
    (tmp_path / "b.csv").write_text(HEADER + "x\n")
    run("publish", "trades", str(tmp_path / "*.csv"), code=1)
    assert not sizes(client)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252", "utf-8-sig"])
def test_encodings_and_delimiters(run: Run, client: Client, tmp_path: Path, encoding: str) -> None:
    content = (HEADER + "2026-01-05 09:00:00,Zürich,1.5,7\n").replace(",", ";").encode(encoding)
    (tmp_path / "day.csv").write_bytes(content)
    options = ["--delimiter", ";", "--encoding", encoding]
    run("publish", "trades", str(tmp_path / "day.csv"), *options)
    run("publish", "trades", pipe(tmp_path / "in.csv", content), *options)
    answer = client.ask("SELECT symbol, size FROM trades")
    assert [tuple(row.values()) for row in answer] == [("Zürich", 7)] * 2


def test_a_wide_encoding_that_is_cut(run: Run, tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_bytes((HEADER + lines(0, 1)).encode("utf-16")[:-1])
    messages = run("publish", "trades", str(tmp_path / "day.csv"), "--encoding", "utf-16", code=2)
    assert "is not utf-16" in messages.stderr


def test_marks_are_sent_with_every_batch(
    run: Run, transport: MockTransport, tmp_path: Path
) -> None:
    name = pipe(tmp_path / "in.csv", (HEADER + lines(0, 25_000)).encode())
    run("publish", "trades", name, "--publisher", "meter")
    marks = [request.mark for request in transport.requests("PublishStream")]
    assert all(marks) and marks[-1] == b'{"row":25000}'
    assert len(marks) >= 3
