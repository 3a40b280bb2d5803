"""psoup copy changes, over a running server: what a user sees, each change once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from client_sdk import Client, Copies
from psoup.cli import cli
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

HOT = "SELECT room, temp FROM rooms WHERE temp > 80"


@pytest.fixture(scope="module")
def client(shared_server: ServerProcess) -> Iterator[Client]:
    with Client(shared_server.address, tenant="cli-copy-changes") as client:
        client.define("CREATE STREAM rooms (room TEXT, temp BIGINT) KEY (room)")
        yield client


@pytest.fixture
def file(tmp_path: Path, client: Client) -> str:
    """A file whose copy has a room that came and was updated."""
    path = str(tmp_path / "phone.db")
    room = tmp_path.name
    run("copy", "keep", path, "hot", f"{HOT} AND room = '{room}'", "--changes")
    with Copies(path) as copies:
        copies.sync(client)
        for temp in (99, 95):
            client.publish("rooms", [{"room": room, "temp": temp}])
            copies.sync(client)
    return path


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def test_lines_for_people(file: str) -> None:
    came, changed = run("copy", "changes", file, "hot").output.splitlines()
    assert came.split()[2:4] == ["+", "new"] and came.endswith("temp=99")
    assert changed.split()[2:4] == ["u", "changed"] and changed.endswith("temp=99→95")
    assert "no changes" in run("copy", "changes", file, "hot").output


def test_objects_for_programs(file: str, client: Client) -> None:
    changes = [json.loads(line) for line in run_json(file)]
    assert [(change["tag"], change["row"]["temp"], change["why"]) for change in changes] == [
        ("+", 99, "new"),
        ("u", 95, "changed"),
    ]
    assert changes[1]["old"]["temp"] == 99 and changes[0]["at"] < changes[1]["at"]
    assert run_json(file) == []


def test_every_refresh_point(client: Client, tmp_path: Path) -> None:
    stream, path = f"steps_{tmp_path.name}", str(tmp_path / "phone.db")
    client.define(f"CREATE STREAM {stream} (n BIGINT, at TIMESTAMP) ORDERED BY at RETAIN 9 SECONDS")
    sql = f"SELECT n FROM {stream} RANGE 2 SECONDS REFRESH EVERY 2 SECONDS"
    run("copy", "keep", path, "steps", sql, "--changes", "--every-point")
    begin = datetime(2026, 11, 16, 9, tzinfo=UTC)
    with Copies(path) as copies:
        for seconds in ((0,), (2, 4, 6), (20, 40)):
            for second in seconds:
                row = {"n": second, "at": begin + timedelta(seconds=second)}
                client.publish(stream, [row])
            copies.sync(client)
    lines = [line.split()[1:] for line in run("copy", "changes", path, "steps").output.splitlines()]
    assert sorted(line[:2] for line in lines[:4]) == [
        ["09:00:02", "+"],
        ["09:00:02", "-"],
        ["09:00:04", "+"],
        ["09:00:04", "-"],
    ]
    assert lines[6] == ["09:00:34", "skip", "retention"]
    assert "--changes" in run("copy", "keep", path, "b", sql, "--every-point", code=2).output


def run_json(file: str) -> list[str]:
    return run("copy", "changes", file, "hot", "--json").output.splitlines()


def test_following(file: str, client: Client, tmp_path: Path) -> None:
    """Somebody else syncs."""

    def later() -> None:
        time.sleep(0.3)
        client.publish("rooms", [{"room": tmp_path.name, "temp": 20}])
        with Copies(file) as copies:
            copies.sync(client)

    thread = threading.Thread(target=later)
    thread.start()
    lines = run("copy", "changes", file, "hot", "--follow", "--rounds", "3").output.splitlines()
    thread.join()
    assert [line.split()[2] for line in lines] == ["+", "u", "-"]
    assert lines[2].split()[3] == "ended" and lines[2].endswith("temp=95")


def test_what_was_told_is_lost(file: str) -> None:
    with Copies(file) as copies, copies._file.writing() as connection:
        connection.execute("UPDATE _psoup_copies SET told = 'x'")
    assert (
        "DAMAGED: the answer starts over, with 1 row" in run("copy", "changes", file, "hot").output
    )
    with Copies(file) as copies, copies._file.writing() as connection:
        connection.execute("UPDATE _psoup_copies SET told = 'x'")
    (line,) = run_json(file)
    output = json.loads(line)
    assert output["reset"] == "DAMAGED" and [row["temp"] for row in output["rows"]] == [95]


def test_wrong_usage(file: str) -> None:
    run("copy", "keep", file, "plain", HOT)
    assert "keep it with changes=True" in run("copy", "changes", file, "plain", code=2).output
    assert "--follow" in run("copy", "changes", file, "hot", "--rounds", "2", code=2).output
    assert "--changes" in run("copy", "keep", file, "hot", HOT, "--without-left", code=2).output
    assert "'other'" in run("copy", "changes", file, "other", code=1).output
