"""Copies and the queue from the command line, over a running server."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from client_sdk import Client, Copies
from psoup.cli import cli
from tests.cli.conftest import Run
from tests.support.client_sdk.flaky_store import FlakyStore
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

NOWHERE = ("--target", "127.0.0.1:1", "--timeout", "0.3")
TENANT = "cli-copies"


@pytest.fixture(scope="module")
def client(shared_server: ServerProcess) -> Iterator[Client]:
    with Client(shared_server.address, tenant=TENANT) as client:
        client.define("CREATE STREAM trades (symbol TEXT, price DOUBLE) RETAIN 1 HOUR")
        client.publish("trades", [{"symbol": s, "price": p} for s, p in [("A", 1), ("B", 200)]])
        yield client


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "phone.db")


@pytest.fixture
def run(shared_server: ServerProcess, client: Client) -> Run:
    """As a user does, over the network."""
    own_options = ("--target", shared_server.address, "--tenant", TENANT)

    def invoke(*arguments: str, code: int = 0) -> Result:
        options = () if arguments[0] == "--target" else own_options
        result = CliRunner().invoke(cli, [*options, *arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return invoke


def offline(*arguments: str) -> tuple[str, ...]:
    return (*NOWHERE, *arguments)


def test_keep_sync_and_read_without_a_connection(run: Run, file: str, client: Client) -> None:
    dear = "SELECT symbol, price FROM trades WHERE price > :p RANGE 1 HOUR"
    kept = run(*offline("copy", "keep", file, "dear", dear, "--param", "p=100"))
    assert "psoup copy sync" in kept.stderr
    assert "has not been synced yet" in run("copy", "rows", file, "dear", code=1).stderr
    run("copy", "keep", file, "n", "SELECT count(*) AS n FROM trades", "--base-rows")
    first = run("copy", "sync", file).stdout
    assert "changed" in first and "whole: FIRST" in first
    assert "unchanged" in run("copy", "sync", file, "dear", "--one-position").stdout
    result = run(*offline("copy", "rows", file, "dear"))
    assert "200.0" in result.stdout and "1 row at 20" in result.stderr
    lines = run(*offline("copy", "rows", file, "n", "--format", "jsonl")).stdout
    assert json.loads(lines)["n"] == client.ask("SELECT count(*) AS n FROM trades").rows[0]["n"]
    queried = run(*offline("copy", "query", file, "SELECT max(price) AS most FROM dear", "--json"))
    assert json.loads(queried.stdout) == {"most": 200.0}
    assert "dear at 20" in queried.stderr and "n at 20" not in queried.stderr
    assert "No answer from a store" in run(*offline("copy", "sync", file), code=3).stderr


def test_the_now_of_a_copy_is_that_of_its_rows(run: Run, file: str) -> None:
    run("copy", "keep", file, "dear", "SELECT symbol FROM trades RANGE 1 HOUR")
    run("copy", "sync", file)
    rows = ("copy", "rows", file, "dear")
    document = json.loads(run(*offline(*rows, "--format", "json")).stdout)
    assert document["now"] > document["synced_now"] and document["row_count"] == 2
    later = ("--now", "2100-01-01T00:00")
    document = json.loads(run(*offline(*rows, *later, "--format", "json")).stdout)
    assert document["now"].startswith("2100-01-01T00:00") and document["rows"] == []
    shown = run(*offline(*rows, *later, "--format", "csv")).stderr
    assert "0 rows at 2100-01-01 00:00:00+00:00 · synced as of 20" in shown
    queried = run(*offline("copy", "query", file, "SELECT count(*) FROM Dear", *later))
    assert "dear at 2100-01-01 00:00:00+00:00" in queried.stderr


def test_verify_tells_what_is_damaged_and_a_sync_repairs_it(run: Run, file: str) -> None:
    run("copy", "keep", file, "all", "SELECT * FROM trades")
    assert "no copy has been synced" in run(*offline("copy", "verify", file)).output
    run("copy", "sync", file)
    assert "every row is as it was sent" in run(*offline("copy", "verify", file, "all")).stdout
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("UPDATE _psoup_rows_1_1 SET c1 = 5.0 WHERE row_id = 1")
        raw.commit()
    result = run(*offline("copy", "verify", file), code=1)
    assert "1 row damaged" in result.stdout and "psoup copy sync" in result.stderr
    verdict = json.loads(run(*offline("copy", "verify", file, "--json"), code=1).stdout)
    assert (
        verdict["all"]["damaged"] == 1
        and verdict["all"]["complete"]
        and not verdict["all"]["sound"]
    )
    synced = json.loads(run("copy", "sync", file, "--json").stdout)
    assert synced["copies"]["all"]["repaired"] == 1
    run(*offline("copy", "verify", file))


def test_status_says_what_is_kept_and_what_waits(run: Run, file: str, tmp_path: Path) -> None:
    run("copy", "keep", file, "dear", "SELECT symbol FROM trades WHERE price > 100 RANGE 1 HOUR")
    run("copy", "keep", file, "later", "SELECT symbol FROM trades", "--priority", "-1")
    run("copy", "sync", file, "dear")
    (tmp_path / "new.csv").write_text("symbol,price\nC,300\n")
    run("copy", "publish", file, "trades", str(tmp_path / "new.csv"))
    result = run(*offline("copy", "status", file))
    assert "fresh until" in result.stdout and "queued for trades: 1 batch, 1 row" in result.stderr
    status = json.loads(run("copy", "status", file, "--json").stdout)
    assert [(entry["name"], entry["synced"]) for entry in status["copies"]] == [
        ("dear", True),
        ("later", False),
    ]
    assert status["queue"]["rows"] == 1
    forgotten = run("copy", "forget", file, "dear").stderr
    assert "psoup unregister" in forgotten
    assert "which has: later" in run("copy", "rows", file, "dear", code=1).stderr


def test_what_is_queued_offline_is_sent_by_the_next_sync(
    run: Run, file: str, client: Client, tmp_path: Path
) -> None:
    client.define("CREATE STREAM queued (a BIGINT, b TEXT)")
    data = tmp_path / "rows.csv"
    data.write_text("a,b\n1,x\n2,y\n")
    unknown = run(*offline("copy", "publish", file, "queued", str(data)), code=3)
    assert "are not in the file yet" in unknown.stderr
    run("copy", "publish", file, "queued", str(data))
    data.write_text("a,b\n3,z\nfour,z\n")
    bad = run(*offline("copy", "publish", file, "queued", str(data)), code=1)
    assert "line 3, a" in bad.stderr and "nothing was queued" in bad.stderr
    run(*offline("copy", "publish", file, "queued", str(data), "--skip-bad"))
    run(*offline("copy", "send", file), code=3)
    run("copy", "keep", file, "all", "SELECT a FROM queued ORDER BY a")
    queued = json.loads(run("copy", "sync", file, "--keep-queue", "--json").stdout)
    assert queued["sent"]["batches"] == 0 and queued["copies"]["all"]["rows"] == 0
    synced = run("copy", "sync", file)
    assert "sent 2 batches, 3 rows" in synced.stderr
    assert [row["a"] for row in client.ask("SELECT a FROM queued ORDER BY row_id")] == [1, 2, 3]
    assert "nothing is queued" in run("copy", "send", file).stderr


def test_what_was_refused_is_shown_mended_or_dropped(
    run: Run, file: str, client: Client, tmp_path: Path
) -> None:
    client.define("CREATE STREAM soon (a BIGINT)")
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    run("copy", "publish", file, "soon", str(tmp_path / "a.jsonl"))
    client.define("DROP STREAM soon")
    refused = run("copy", "send", file, code=1).stderr
    assert "refused: batch 1 for soon" in refused
    assert "UNKNOWN_STREAM" in run("copy", "rejected", file).stdout
    assert json.loads(run("copy", "rejected", file, "--json").stdout)["rows"] == 1
    assert "no batch 7 was refused" in run("copy", "requeue", file, "7", code=2).stderr
    client.define("CREATE STREAM soon (a BIGINT)")
    run("copy", "requeue", file)
    assert "sent 1 batch, 1 row" in run("copy", "send", file).stderr
    run("copy", "publish", file, "soon", "--heartbeat", "2026-01-05T09:00")
    run("copy", "send", file, code=1)
    assert "deleted: 1 batch" in run("copy", "discard", file, "--yes").stderr
    assert "nothing was refused" in run("copy", "rejected", file).stderr


def test_conflicts_are_shown_and_decided(
    run: Run, file: str, client: Client, tmp_path: Path
) -> None:
    client.define("CREATE STREAM parts (id BIGINT, item TEXT) KEY (id)")
    client.publish("parts", [{"id": 1, "item": "theirs"}, {"id": 2, "item": "theirs"}])
    data = tmp_path / "edits.jsonl"
    for id_ in (1, 2):
        data.write_text(json.dumps({"id": id_, "item": "mine", "_expected": -1}))
        run("copy", "publish", file, "parts", str(data))
    refused = run("copy", "send", file, code=1).stderr
    assert "psoup copy conflicts" in refused
    shown = [
        json.loads(line)
        for line in run("copy", "conflicts", file, "--json").stdout.split("\n")
        if line
    ]
    assert [(row["mine"], row["theirs"]["item"], row["theirs_id"]) for row in shown] == [
        ({"id": 1, "item": "mine"}, "theirs", 0),
        ({"id": 2, "item": "mine"}, "theirs", 1),
    ]
    assert '"item": "theirs"' in run("copy", "conflicts", file).stdout
    run("copy", "resolve", file, "1", code=2)
    run("copy", "resolve", file, "7", "--mine", code=2)
    run("copy", "resolve", file, "1", "--mine")
    run("copy", "resolve", file, "2", "--theirs")
    assert "sent 1 batch" in run("copy", "send", file).stderr
    assert "no edit is in conflict" in run("copy", "conflicts", file).stderr
    answer = client.ask("SELECT id, item FROM parts").rows
    assert {row["id"]: row["item"] for row in answer} == {1: "mine", 2: "theirs"}


def test_what_is_doubtful_is_shown_and_decided(run: Run, file: str, tmp_path: Path) -> None:
    """The file was copied, its twin sent two batches, and the store knows the last of them only."""
    store = FlakyStore()
    forgetful = Client(transport=store.transport())
    forgetful.define("CREATE STREAM s (a BIGINT, b TEXT)")
    with Copies(file) as copies:
        for number in (1, 2, 3):
            copies.publish("s", [{"a": number, "b": ""}])
    twin = tmp_path / "twin.db"
    shutil.copy(file, twin)
    with Copies(twin) as copies:
        copies.send(forgetful)
    store.forgets = True
    with Copies(file) as copies:
        assert len(copies.send(forgetful).doubtful) == 2
    assert "doubtful: 2 batches" in run("copy", "status", file).stderr
    assert json.loads(run("copy", "status", file, "--json").stdout)["queue"]["doubtful"] == 2
    assert "UNVERIFIED" in run("copy", "doubtful", file).stdout
    assert json.loads(run("copy", "doubtful", file, "--json").stdout.splitlines()[0])["batch"] == 1
    assert "deleted: 0 batches" in run("copy", "discard", file, "--yes").stderr
    assert "deleted: 1 batch" in run("copy", "discard", file, "1", "--yes").stderr
    assert "queued again: 1 batch" in run("copy", "resend", file).stderr
    assert "nothing is doubtful" in run("copy", "doubtful", file).stderr
    second_file = run("copy", "send", file, code=1).stderr
    assert "belongs to store" in second_file and "psoup copy move" in second_file
    assert "queued to be sent there: 1 row" in run("copy", "move", file).stderr


def test_queued_rows_are_said_not_to_be_in_the_copy(
    run: Run, file: str, client: Client, tmp_path: Path
) -> None:
    """A sync has learnt the stream of the copy, so that rows can be queued and checked offline."""
    client.define("CREATE STREAM edits (a BIGINT)")
    run("copy", "keep", file, "all", "SELECT a FROM edits")
    run("copy", "keep", file, "others", "SELECT symbol FROM trades")
    run("copy", "sync", file)
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    queued = run(*offline("copy", "publish", file, "EDITS", str(tmp_path / "a.jsonl"))).stderr
    assert "queued for EDITS: 1 row; copies show them after a sync" in queued
    assert "copies show them after a sync" in run("copy", "status", file).stderr
    assert "not sent yet, and not shown: 1 row" in run("copy", "rows", file, "all").stderr
    assert "not sent yet" not in run("copy", "rows", file, "others").stderr
    assert "not sent yet, and not shown" in run("copy", "query", file, 'SELECT * FROM "all"').stderr
    run("copy", "sync", file)
    assert "not sent yet" not in run("copy", "rows", file, "all").stderr


def test_own_edits_are_shown_at_once(run: Run, file: str, client: Client, tmp_path: Path) -> None:
    client.define("CREATE STREAM tasks (id BIGINT, item TEXT) KEY (id)")
    client.publish("tasks", [{"id": 1, "item": "lamp"}])
    text = "SELECT id, item FROM tasks"
    run("copy", "keep", file, "tasks", text, "--edits", "--changes", "--with-own")
    run("copy", "sync", file)
    (tmp_path / "a.jsonl").write_text('{"id": 1, "item": "two lamps"}\n')
    queued = run(*offline("copy", "publish", file, "tasks", str(tmp_path / "a.jsonl"))).stderr
    assert "queued for tasks: 1 row; copies kept with --edits show them now" in queued
    assert "copies kept with --edits show them now" in run("copy", "status", file).stderr
    rows = run("copy", "rows", file, "tasks", "--pending", "--format", "csv")
    assert '1,"two lamps","queued"' in rows.stdout and "not sent yet: 1 row" in rows.stderr
    stored = run("copy", "rows", file, "tasks", "--stored", "--format", "csv")
    assert '1,"lamp"' in stored.stdout and "and not shown" in stored.stderr
    assert "queued" in run("copy", "query", file, "SELECT _pending FROM tasks").stdout
    assert "queued" not in run("copy", "query", file, "SELECT * FROM tasks", "--stored").stdout
    assert "own" in run("copy", "changes", file, "tasks", "--json").stdout
    pending = run("copy", "pending", file, "tasks", "--json").stdout
    assert json.loads(pending) == {"edit": 1, "status": "queued"}
    client.define("DROP STREAM tasks")
    run("copy", "send", file, code=1)
    assert "rejected" in run("copy", "pending", file, "tasks").stdout
    assert "two lamps" not in run("copy", "rows", file, "tasks").stdout
    assert "two lamps" in run("copy", "rows", file, "tasks", "--rejected").stdout
    assert (
        "needs --changes and --edits"
        in run("copy", "keep", file, "x", text, "--with-own", code=2).stderr
    )


def test_edits_that_can_t_be_shown_are_refused(run: Run, file: str) -> None:
    run("copy", "keep", file, "n", "SELECT count(*) AS n FROM trades", "--edits")
    refused = run("copy", "sync", file, code=1)
    assert "refused" in refused.stdout and "own edits can't be shown" in refused.stderr
    run("copy", "sync", file)
    assert "no edits are pending" in run("copy", "pending", file, "n").stderr


def test_a_budget_leaves_the_rest_for_later(run: Run, file: str, client: Client) -> None:
    client.define("CREATE STREAM wide (a BIGINT, b TEXT)")
    client.publish("wide", pa.table({"a": range(3000), "b": [f"{n:050d}" for n in range(3000)]}))
    run("copy", "keep", file, "wide", "SELECT a, b FROM wide")
    first = run("copy", "sync", file, "--budget", "1kB", "--away", "8h")
    assert (
        "incomplete" in first.stdout and "the next sync brings the remaining rows" in first.stderr
    )
    assert "not a size" in run("copy", "sync", file, "--budget", "much", code=2).stderr
    for _ in range(200):
        if "incomplete" not in run("copy", "sync", file, "--budget", "100kB").stdout:
            break
    target = str(Path(file).with_suffix(".arrow"))
    run("copy", "rows", file, "wide", "--format", "arrow", "--output", target)
    assert pa.ipc.open_file(target).read_all().num_rows == 3000


def test_watch_tells_of_changes(run: Run, file: str) -> None:
    run("copy", "keep", file, "dear", "SELECT symbol FROM trades WHERE price > 100")
    assert "dear: changed" in run("copy", "watch", file, "--rounds", "1").stdout


def test_wrong_usage_says_what_to_do(run: Run, file: str, tmp_path: Path) -> None:
    assert "does not exist" in run("copy", "sync", file, code=2).stderr
    assert not Path(file).exists()
    assert "not both" in run("copy", "keep", file, "x", code=2).stderr
    assert "not both" in run("copy", "keep", file, "x", "SELECT", "--handle", "00", code=2).stderr
    run("copy", "keep", file, "x", "SELECT nothing FROM trades")
    refused = run("copy", "sync", file, code=1)
    assert "there is no column nothing in trades" in refused.stderr and "refused" in refused.stdout
    second_file = tmp_path / "other.txt"
    second_file.write_text("not a database, but some text that is longer than a header")
    assert "no SQLite file" in run("copy", "status", str(second_file), code=1).stderr


def test_a_file_is_cleared_and_logged_out(run: Run, file: str, client: Client) -> None:
    run("copy", "keep", file, "dear", "SELECT symbol FROM trades WHERE price > 100", "--pinned")
    run("copy", "keep", file, "all", "SELECT symbol FROM trades")
    synced = run("copy", "sync", file, "--most-bytes", "1B", "--json").stdout
    assert json.loads(synced)["evicted"] == ["all"]
    assert "was evicted" in run("copy", "rows", file, "all", code=1).output
    assert "cleared 2 copies" in run("copy", "clear", file).output
    heartbeat = "2026-01-01T00:00:00Z"
    run("copy", "publish", file, "trades", "--heartbeat", heartbeat)
    refused = run(*offline("copy", "log-out", file), code=1).output
    assert "discard_queue=True" in refused
    out = run("copy", "log-out", file, "--offline", "--discard-queue").output
    assert "cleared 2 copies" in out and "registered until their lease ends: dear, all" in out
    with Copies(file) as copies:
        assert copies.names == [] and copies.queued.batches == 0
