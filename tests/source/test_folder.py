"""Folders as sources: skips, files that can't be read or moved, and what a kill leaves to do."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psoup.source.connectors import folder as folder_module
from psoup.source.connectors.folder import FileReader, FolderConnector
from psoup.source.connectors.partition import Context
from psoup.source.errors import BadRowFound, BadSettings
from psoup.source.lag import LagHistory
from psoup.source.operations import skip_to
from psoup.source.settings import SourceSettings
from tests.source.running import Running
from tests.support.client_sdk.fake_store import FakeStore


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    monkeypatch.setattr(FolderConnector, "look_seconds", 0.01)
    running = Running(tmp_path, FakeStore().transport())
    running.client.define("CREATE STREAM s (k BIGINT)")
    (tmp_path / "drop").mkdir()
    return running


def drop(running: Running, name: str | bytes, *lines: object, age: int = 100) -> Path:
    path = running.folder / "drop" / os.fsdecode(name)
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))
    return path


def row(number: int) -> str:
    return json.dumps({"k": number})


def doors(running: Running, after: str = "keep") -> SourceSettings:
    place = {"pattern": "drop/*.jsonl", "after": after}
    return running.settings("doors", "files", place)


def done(running: Running, count: int) -> Callable[[], bool]:
    return lambda: sum(b'"done":true' in mark for mark in running.marks().values()) == count


def skip(settings: SourceSettings, mark: str) -> None:
    asyncio.run(skip_to(settings, mark))


def test_the_mark_of_a_bad_row_is_the_way_on(running: Running) -> None:
    drop(running, "a.jsonl", row(1), row(2), "oops", row(3))
    for _ in range(2):
        error = running.run(doors(running))["doors"]
        assert isinstance(error, BadRowFound) and running.numbers() == [1, 2]
    mark = re.search(r"the next mark is (\{.*\})", str(error))
    assert mark is not None
    skip(doors(running), mark[1])
    assert running.run(doors(running), until=done(running, 1)) == {"doors": None}
    assert running.numbers() == [1, 2, 3]


def test_fields_that_no_column_takes_are_in_the_status(running: Running) -> None:
    for number in range(2):
        drop(running, f"{number}.jsonl", json.dumps({"k": number, "extra": 1}), age=9 - number)
    running.run(doors(running), until=lambda: '"left_out": {"extra": 2}' in written(running))
    assert running.numbers() == [0, 1]


def written(running: Running) -> str:
    running.status.write()
    return running.status.path.read_text()


def test_a_file_is_passed_over_and_read_again(running: Running) -> None:
    drop(running, "a.jsonl", row(1), "oops")
    assert isinstance(running.run(doors(running))["doors"], BadRowFound)
    skip(doors(running), "latest")
    drop(running, "b.jsonl", row(2))
    assert running.run(doors(running), until=done(running, 2)) == {"doors": None}
    assert running.numbers() == [1, 2]


@pytest.mark.parametrize(
    "mark", ["{", "5", '{"x": 1}', '{"row": "1"}', '{"row": -1}', "2026-11-16"]
)
def test_what_is_no_mark_of_a_file_is_refused(running: Running, mark: str) -> None:
    drop(running, "a.jsonl", row(1))
    with pytest.raises(BadSettings, match=r'no place of this source: write .*\{"row": 18\}'):
        skip(doors(running), mark)
    assert not running.marks()
    error = running.run(doors(running), start="latest")["doors"]
    assert isinstance(error, BadSettings) and "--from is not for files" in str(error)


@pytest.mark.parametrize("after", ["delete", "move:done"])
def test_a_kill_before_a_file_is_moved(
    running: Running, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = drop(running, "a.jsonl", row(1))
    with monkeypatch.context() as patch:
        patch.setattr(FolderConnector, "_finish", lambda self, path, stamp: None)
        running.run(doors(running, after), until=done(running, 1))
    assert path.exists()
    running.run(doors(running, after), until=lambda: not path.exists())
    assert running.numbers() == [1]
    assert (running.folder / "done" / "a.jsonl").exists() == (after != "delete")


def test_a_file_is_moved_to_another_device(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, names = os.replace, list[tuple[str, str]]()

    def other_device(source: Any, target: Any) -> None:
        if Path(source).suffix in (".jsonl", ".part"):
            names.append((Path(source).name, Path(target).name))
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(source, target)

    path = drop(running, "a.jsonl", row(1))
    monkeypatch.setattr(os, "replace", other_device)
    settings = doors(running, "move:done")
    assert running.run(settings, until=lambda: not path.exists()) == {"doors": None}
    (moved,) = (running.folder / "done").iterdir()
    assert moved.read_text() == row(1) + "\n"
    assert names == [("a.jsonl", "a.jsonl"), (".a.jsonl.part", "a.jsonl")]


def test_a_file_that_can_not_be_moved_stays(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    drop(running, "a.jsonl", row(1))
    drop(running, "b.jsonl", row(2), age=50)
    assert running.run(doors(running, "delete"), until=done(running, 2)) == {"doors": None}
    assert running.numbers() == [1, 2]
    assert any("stays where it is: Permission denied" in line for line in running.notices)


def test_an_unreadable_file_is_waited_for_behind_those_before_it(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, is_readable = folder_module.file_digest, False

    def refuse(path: Path) -> str:
        if path.name == "b.jsonl" and not is_readable:
            raise PermissionError(errno.EACCES, "Permission denied")
        return digest(path)

    monkeypatch.setattr(folder_module, "file_digest", refuse)
    monkeypatch.setattr("psoup.source.runner.FIRST_PAUSE_SECONDS", 0.01)
    for age, name in enumerate(["c", "b", "a"]):
        drop(running, f"{name}.jsonl", row(ord(name)), age=age)

    def readable_after_a_while() -> bool:
        nonlocal is_readable
        is_readable = any("b.jsonl can't be read" in line for line in running.notices)
        return done(running, 3)()

    assert running.run(doors(running), until=readable_after_a_while) == {"doors": None}
    assert running.numbers() == [ord("a"), ord("b"), ord("c")]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_that_vanishes_stops_its_source_only(
    running: Running, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = drop(running, "a.jsonl", row(1))

    def vanish(self: FileReader) -> None:
        if is_there:
            raise PermissionError(errno.EACCES, "Permission denied")
        path.unlink(missing_ok=True)
        path.stat()

    monkeypatch.setattr(FileReader, "_check", vanish)
    error = running.run(doors(running))["doors"]
    assert error is not None and "a.jsonl" in str(error)
    assert ("can't be read" if is_there else "not there any more") in str(error)


def test_names_that_are_no_utf8_and_publishers_without_marks(running: Running) -> None:
    drop(running, b"\xff\xe9.jsonl", row(1), "oops")
    running.client.publisher("doors/x").publish("s", [{"k": 0}])
    running.client.define(
        "CREATE STREAM rejected (source TEXT, place TEXT, reason TEXT, message TEXT, raw TEXT, "
        "metadata TEXT)"
    )
    place = {"pattern": "drop/*.jsonl"}
    settings = running.settings("doors", "files", place, bad_rows="aside", aside="rejected")
    for _ in range(2):
        assert running.run(settings, until=done(running, 1)) == {"doors": None}
    assert running.numbers() == [0, 1]
    (aside,) = running.client.ask("SELECT place FROM rejected")
    assert aside["place"] == r"\xff\xe9.jsonl, line 2"


def test_the_lag_ends_when_the_files_are_read(running: Running) -> None:
    """One file always waits, and it is never the same one."""
    connector = FolderConnector(Context(doors(running), running.client.stream("s"), None))  # type: ignore[arg-type]
    history, seconds = LagHistory(), list[float]()

    def look(now: float) -> None:
        records = {record.name: record for record in running.client.publishers()}
        (lag,) = connector.lag(records).values()
        history.look(lag, now)
        seconds.append(history.seconds(now))

    for turn in range(4):
        drop(running, f"{turn}.jsonl", row(turn), age=10 - turn)
        look(10.0 * turn)
        if turn:
            running.run(doors(running), until=done(running, turn + 1))
    look(40.0)
    assert seconds == [0.0, 10.0, 0.0, 0.0, 0.0] and running.numbers() == [0, 1, 2, 3]
