"""A client in another language: what it copies is what the store would answer.

It knows the proto file and docs/reference/protocol.md, and shares nothing with the Python code.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Client
from tests.conftest import ROOT
from tests.examples.conftest import Pair
from tests.examples.typescript import (
    Refused,
    assert_same,
    unit_tests,
)
from tests.support.docs.markdown import blocks, read
from tests.support.server.process import ServerProcess

pytestmark = [pytest.mark.long, pytest.mark.process]

START = datetime(2025, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_checksums_ids_and_files_by_its_own_tests(target: Path) -> None:
    run = unit_tests(target)
    assert run.returncode == 0 and "# fail 0" in run.stdout, run.stdout


def test_the_session_in_its_readme(pair: Pair) -> None:
    session = next(blocks(read("examples/typescript/README.md"), "console")).text
    commands = [block.splitlines() for block in session.split("$ ")[1:]]
    for command, *output in commands:
        match shlex.split(command):
            case ["psoup", "stream", "create", sql]:
                pair.client.define(sql)
            case ["cat", name]:
                (pair.path.parent / name).write_text("\n".join(output))
            case ["psoup-copy", *arguments]:
                _same_lines(pair.driver.run(*_in_place(pair, arguments)), output)


def test_help_names_every_command_and_option(pair: Pair) -> None:
    text = "\n".join(pair.driver.run("--help"))
    for command in ("register", "sync", "rows", "watch", "publish"):
        assert f"psoup-copy {command} " in text
    source = (ROOT / "examples/typescript/src/commands.ts").read_text()
    options = re.findall(r"^  \"?([a-z-]+)\"?: \{ type:", source, re.MULTILINE)
    assert len(options) >= 17 and all(f"--{option}" in text for option in options)
    assert pair.driver.run("sync", "-h") == text.splitlines()
    with pytest.raises(Refused, match="argument is missing"):
        pair.driver.run("sync")


def _in_place(pair: Pair, arguments: list[str]) -> list[str]:
    """The same with the files and the server of the test."""
    placed = [
        str(pair.path.parent / argument) if argument.endswith(".jsonl") else argument
        for argument in arguments
    ]
    return [*placed, "--address", pair.address, "--tenant", pair.tenant]


def _same_lines(printed: list[str], written: list[str]) -> None:
    def without_instants(lines: list[str]) -> list[str]:
        return [re.sub(r" at \S+Z$", "", line) for line in lines]

    assert without_instants(printed) == without_instants(written)


# ---- answers

EVERY_TYPE = (
    "CREATE STREAM every (b BOOLEAN, i BIGINT, d DOUBLE, m DECIMAL(38,10), t TEXT,"
    " at TIMESTAMP, day DATE)"
)
ODD_ROWS: list[dict[str, str | None]] = [
    {"b": "true", "i": "9223372036854775807", "d": "-0", "m": "-1234567890123456789.0123456789"},
    {"b": "false", "i": "-9223372036854775808", "d": "NaN", "t": "🜁 𝔸 \U0010ffff ﬁ"},
    {"d": "5e-324", "m": "9999999999999999999999999999.9999999999", "t": ""},
    {"d": "-Infinity", "at": "-62135596800000000", "day": "0001-01-01", "m": "-0.5"},
    {"d": "0", "at": "253402300799999999", "day": "9999-12-31", "t": 'a\t"b"\\\n\u0000\u2028'},
    {"i": "9007199254740993", "at": "-1", "day": "1969-12-31"},
]


def test_every_type_comes_and_goes_unharmed(pair: Pair) -> None:
    pair.client.define(EVERY_TYPE)
    rows = pair.path.parent / "rows.jsonl"
    names = ("b", "i", "d", "m", "t", "at", "day")
    rows.write_text("".join(json.dumps(dict.fromkeys(names) | row) + "\n" for row in ODD_ROWS))
    publish = ("publish", "every", rows, "--address", pair.address, "--tenant", pair.tenant)
    identity = ("--publisher", "desk", "--sequence", 1)
    assert pair.driver.run(*publish, *identity) == ["6 rows in every"]
    assert pair.driver.run(*publish, *identity) == ["6 rows in every, taken before"]
    pair.register("SELECT * FROM every ORDER BY d DESC NULLS FIRST, t NULLS FIRST, i")
    assert len(pair.sync().rows) == 6
    more: list[dict[str, Any]] = [{"d": 1e300, "t": "🜂"}, {"d": None}, {"d": -1e-300}]
    pair.client.publish("every", [dict.fromkeys(names) | row for row in more])
    assert len(pair.sync().rows) == 9


@pytest.mark.parametrize(
    "select",
    [
        "SELECT a, b FROM s RANGE 10 SECONDS",
        "SELECT b, a FROM s ORDER BY b DESC, a BEGIN NOW - 9 SECONDS END NOW - 3 SECONDS",
        "SELECT a FROM s ROWS 5",
        "SELECT a, b FROM s ROWS 2 PARTITION BY b",
        "SELECT b, count(*) AS n, sum(d) AS total, min(a) AS least FROM s GROUP BY b ROWS 7",
        "SELECT DISTINCT b FROM s ORDER BY b DESC RANGE 4 SECONDS",
        "SELECT avg(d) AS d FROM s RANGE 3 SECONDS",
        "SELECT a, d FROM s ORDER BY d DESC NULLS FIRST, a LIMIT 4",
        "SELECT a FROM s RANGE 20 SECONDS REFRESH EVERY 5 SECONDS",
        "SELECT x.a, y.d FROM s x JOIN s y ON x.b = y.b AND x.a < y.a RANGE 30 SECONDS",
        "SELECT a FROM s WHERE b = 'x' UNION ALL SELECT a FROM s WHERE b = 'y' RANGE 10 SECONDS",
    ],
)
def test_a_copy_follows_its_answer(pair: Pair, select: str) -> None:
    pair.client.define(
        "CREATE STREAM s (a BIGINT, b TEXT, d DOUBLE, at TIMESTAMP) ORDERED BY at RETAIN 1 MINUTE"
    )
    pair.register(select)
    chance = random.Random(select)
    pair.sync()
    for step in range(8):
        pair.client.publish("s", [_event(chance, 4 * step, n) for n in range(chance.randrange(6))])
        answer = pair.sync()
    assert answer.rows


def _event(chance: random.Random, second: int, number: int) -> dict[str, Any]:
    at = START + (second + chance.randrange(4)) * SECOND
    d = chance.choice([None, -0.0, 0.5, 1e16, -1e16, float(number)])
    return {"a": 100 * second + number, "b": chance.choice(["x", "y", None]), "d": d, "at": at}


def test_keys_are_updated_and_deleted(pair: Pair) -> None:
    pair.client.define("CREATE STREAM k (id BIGINT, v TEXT) KEY (id)")
    pair.register("SELECT id, v FROM k WHERE v <> 'hidden' ORDER BY v, id")
    pair.client.publish("k", [{"id": n, "v": f"v{n}"} for n in range(20)])
    assert len(pair.sync().rows) == 20
    pair.client.publish("k", [{"id": 3, "v": "w"}, {"id": 4, "v": "hidden"}])
    assert ["3", "w"] in pair.sync().rows
    pair.client.delete("k", [{"id": 0}, {"id": 3}])
    assert len(pair.sync().rows) == 17


@pytest.mark.parametrize(
    "select", ["SELECT id, v FROM k", "SELECT v, COUNT(*) AS n FROM k GROUP BY v"]
)
def test_a_copy_that_was_away_loses_erased_rows(pair: Pair, select: str) -> None:
    pair.client.define("CREATE STREAM k (id BIGINT, v TEXT) KEY (id)")
    pair.register(select)
    pair.client.publish("k", [{"id": n, "v": f"v{n}"} for n in range(5)])
    assert len(pair.sync().rows) == 5 and b"v3" in pair.path.read_bytes()
    pair.client.define("ERASE FROM k WHERE id = 3")
    assert len(pair.sync().rows) == 4
    assert b"v3" not in pair.path.read_bytes()


def test_a_join_with_names_follows_their_updates(pair: Pair) -> None:
    pair.client.define("CREATE STREAM trades (symbol TEXT, price DOUBLE)")
    pair.client.define("CREATE STREAM names (symbol TEXT, name TEXT) KEY (symbol)")
    pair.register(
        "SELECT n.name, t.price FROM trades t WINDOW(RANGE 1 HOUR), names n "
        "WHERE t.symbol = n.symbol ORDER BY t.price"
    )
    pair.client.publish("names", [{"symbol": sql, "name": sql.lower()} for sql in "ABC"])
    trades = [{"symbol": "ABCD"[n % 4], "price": float(n)} for n in range(20)]
    pair.client.publish("trades", trades)
    assert len(pair.sync().rows) == 15
    pair.client.publish("names", [{"symbol": "A", "name": "new"}, {"symbol": "D", "name": "d"}])
    assert ["new", "0"] in pair.sync().rows
    pair.client.delete("names", [{"symbol": "B"}])
    assert len(pair.sync().rows) == 15


# ---- time


def test_rows_come_and_go_by_the_clock_alone(pair: Pair) -> None:
    pair.client.define("CREATE STREAM c (a BIGINT)")
    pair.register("SELECT a FROM c BEGIN NOW - 4 SECONDS END NOW - 1 SECOND")
    pair.client.publish("c", [{"a": a} for a in range(5)])
    synced = int(pair.sync().summary["synced"])
    row_count = pair.path.read_bytes()
    begin, until = (int(bound) for bound in pair.lines()[2][2:4])
    time.sleep(max(0, until / 1e6 - time.time()) + 0.1)
    for now in (begin - 1, begin, begin + 1, until - 1, until, until + 1):
        answer = pair.driver.rows_after("rows", pair.path, "--now", now)
        assert_same(answer, pair.client, pair.handle)
        assert len(answer.rows) == (5 if begin <= max(now, synced) < until else 0)
    assert pair.driver.rows_after("rows", pair.path).rows == []
    assert pair.path.read_bytes() == row_count, "no message was needed"


# ---- cut and resumed


@pytest.mark.parametrize(
    "select", ["SELECT a, t FROM m", "SELECT t, sum(a) AS a FROM m GROUP BY t ORDER BY a DESC"]
)
def test_a_transfer_in_many_calls(pair: Pair, select: str) -> None:
    pair.publish_numbers(select)
    options = ("--budget", 15_000, "--calls", 1)
    calls = 0
    rows: list[str] = []
    while not rows:
        answer = pair.driver.run("sync", pair.path, *options)
        assert answer == ["there is more to come: sync again"], "what came since the first call"
        with contextlib.suppress(Refused):
            rows = pair.driver.run("rows", pair.path)
        if not rows:
            pair.client.publish("m", [{"a": -calls, "t": "more"}])
            calls += 1
    assert calls >= 3
    assert len(pair.driver.rows_after("rows", pair.path).rows) == 1500, (
        "the answer of the first call"
    )
    last = pair.sync("--budget", 500)
    assert len(last.rows) == (1500 + calls if select.startswith("SELECT a") else 1501)


def test_killed_in_the_middle(pair: Pair, target: Path) -> None:
    pair.publish_numbers("SELECT a, t FROM m ORDER BY t DESC")
    main = target / "build" / "src" / "main.js"
    command = ["node", str(main), "sync", str(pair.path), "--budget", "6000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    staged = _wait_for(lambda: sum(line[0] == "staged row" for line in pair.lines()))
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate()
    assert output == b"" and staged and pair.lines()[-1][0] == "staged row"
    assert len(pair.sync().rows) == 1500


def _wait_for(result: Callable[[], int]) -> int:
    for _ in range(2000):
        if number := result():
            return number
        time.sleep(0.01)
    raise AssertionError("nothing came")


def test_servers_come_and_go(pair: Pair, target: Path, tmp_path: Path) -> None:
    """A watch lives through the death of its server, and gets what was published in between."""
    with contextlib.ExitStack() as ending:
        first = ServerProcess(tmp_path / "store")
        ending.callback(first.stop)
        port = first.address.rpartition(":")[2]
        pair.address = first.address
        pair.client = ending.enter_context(Client(first.address, tenant=pair.tenant))
        pair.publish_numbers("SELECT a, t FROM m WHERE a < 5")
        main = str(target / "build" / "src" / "main.js")
        command = ["node", main, "watch", str(pair.path), "--json", "--rounds", "2"]
        watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        _wait_for(lambda: sum(line[0] == "row" for line in pair.lines()))
        first.kill()
        second = ServerProcess(tmp_path / "store", "--port", port)
        ending.callback(second.stop)
        pair.client.publish("m", [{"a": -1, "t": "new"}])
        output, _ = watching.communicate(timeout=240)
        rounds = [json.loads(line) for line in output.splitlines()]
        assert [len(line) for line in rounds if isinstance(line, list)] == [2] * (5 + 6)
        assert len(pair.sync().rows) == 6


# ---- refusals


def test_what_can_t_be_answered_is_told(pair: Pair) -> None:
    pair.client.define("CREATE STREAM gone (a BIGINT)")
    with pytest.raises(Refused, match="UNKNOWN_COLUMN"):
        pair.register("SELECT b FROM gone")
    pair.register("SELECT a FROM gone")
    pair.client.publish("gone", [{"a": 1}])
    pair.sync()
    pair.client.define("DROP STREAM gone")
    with pytest.raises(Refused, match="STREAM_DROPPED"):
        pair.driver.run("sync", pair.path)
    assert pair.driver.run("rows", pair.path)[:2] == ["a", "1"], "the copy is as it was"


def test_watch_tells_of_every_round(pair: Pair) -> None:
    pair.publish_numbers("SELECT count(*) AS n FROM m", 3)
    timer = threading.Timer(0.5, lambda: pair.client.publish("m", [{"a": 9, "t": ""}]))
    timer.start()
    lines = pair.driver.run("watch", pair.path, "--rounds", 2, "--json")
    timer.join()
    assert [json.loads(line) for line in lines[::2]] == [["3"], ["4"]]
