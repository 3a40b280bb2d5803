"""The running of sources in one process: where they begin, and what ends which of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from client_sdk import AsyncClient
from psoup.source.connectors.marks import MarkForm
from psoup.source.connectors.partition import Context
from psoup.source.errors import BadRowFound, BadSettings, NoMark, PlaceLost, SourceError
from psoup.source.feeding.piece import BadRow, Mark, Piece
from psoup.source.operations import skip_to
from psoup.source.settings import SourceSettings
from tests.source.running import PieceReader, Running, StubConnector
from tests.support.client_sdk.fake_store import FakeStore

SCHEMA = pa.schema([("k", pa.int64())])
FORM = MarkForm(("earliest", "latest"), '{"at": 3}', required={"at": int})


@pytest.fixture
def running(tmp_path: Path) -> Running:
    running = Running(tmp_path, FakeStore().transport())
    running.client.define("CREATE STREAM s (k BIGINT)")
    return running


def piece(*values: int, at: int, **more: Any) -> Piece:
    return Piece(pa.table({"k": pa.array(values, pa.int64())}), mark={"at": at}, **more)


def source(
    running: Running,
    name: str,
    patch: pytest.MonkeyPatch,
    readers: Mapping[str, Callable[[Mark], Any]],
    begin: Callable[[str], Mark] = lambda text: {"at": 0},
) -> SourceSettings:
    connectors[name] = StubConnector(name, readers, begin)
    for module in ("psoup.source.runner", "psoup.source.operations"):
        patch.setattr(f"{module}.make_connector", _connector)
    return running.settings(name, "stub", {})


connectors: dict[str, StubConnector] = {}


def _connector(context: Context) -> StubConnector:
    return connectors[context.settings.name]


def test_an_unexpected_error_ends_its_source_only(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it comes from a reader, or from the connector."""

    def fail(mark: Mark) -> PieceReader:
        return PieceReader([piece(1, at=1)], KeyError("topic_id"))

    def broken(text: str) -> Mark:
        raise ZeroDivisionError("division by zero")

    good = PieceReader([piece(2, at=1), piece(3, at=2, is_last=True)])
    outcome = running.run(
        source(running, "bad", monkeypatch, {"0": fail}),
        source(running, "worse", monkeypatch, {"0": fail}, broken),
        source(running, "good", monkeypatch, {"0": lambda mark: good}),
    )
    assert outcome["good"] is None and sorted(running.numbers()) == [1, 2, 3]
    assert str(outcome["bad"]).startswith("unexpected KeyError at running.py:")
    assert isinstance(outcome["worse"], SourceError)
    running.status.write()
    states = {name: state["state"] for name, state in running.status.read().items()}
    assert states == {"bad": "stopped", "worse": "stopped", "good": "ended"}


def test_a_quiet_partition_begins_at_the_same_place_after_a_restart(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[tuple[str, Mark]]()

    def reader(part: str, mark: Mark) -> PieceReader:
        opened.append((part, mark))
        return PieceReader([])

    end = 7
    readers = {part: partial(reader, part) for part in ("0", "1")}
    settings = source(running, "t", monkeypatch, readers, lambda text: {"at": end})
    running.run(settings, until=lambda: len(opened) == 2, start="latest")
    end = 20
    for start in ("latest", ""):
        running.run(settings, until=lambda: len(opened) % 2 == 0 and len(opened) > 2, start=start)
    assert len(opened) >= 4 and all(mark == {"at": 7} for _, mark in opened)
    assert running.marks() == {"t/0": b'{"at":7}', "t/1": b'{"at":7}'}


def test_an_interrupted_start_is_made_again(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start is whole when its first partition has a mark; only later partitions are new then."""
    end, is_cut = 7, True

    def begin(text: str) -> Mark:
        if is_cut and "t/2" in running.marks():
            raise PlaceLost("killed")
        return {"at": end if text == "latest" else 0}

    opened = dict[str, Mark]()

    def reader(part: str, mark: Mark) -> PieceReader:
        opened[part] = mark
        return PieceReader([])

    readers = {part: partial(reader, part) for part in ("0", "1", "2")}
    settings = source(running, "t", monkeypatch, readers, begin)
    assert isinstance(running.run(settings, start="latest")["t"], PlaceLost)
    end, is_cut = 9, False
    readers["3"] = partial(reader, "3")
    settings = source(running, "t", monkeypatch, dict(list(readers.items())[:3]), begin)
    running.run(settings, until=lambda: len(opened) == 3, start="latest")
    assert opened == {"0": {"at": 9}, "1": {"at": 9}, "2": {"at": 7}}
    settings = source(running, "t", monkeypatch, readers, begin)
    running.run(settings, until=lambda: len(opened) == 4, start="latest")
    assert opened["3"] == {"at": 0}


def test_another_process_begins_at_the_same_time(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(text: str) -> Mark:
        running.client.publisher("t/0").publish("s", [{"k": 1}], mark=b'{"at":5}')
        return {"at": 9}

    opened = list[Mark]()

    def reader(mark: Mark) -> PieceReader:
        opened.append(mark)
        return PieceReader([])

    settings = source(running, "t", monkeypatch, {"0": reader}, begin)
    running.run(settings, until=lambda: bool(opened), start="latest")
    assert opened == [{"at": 5}]


def test_rows_before_a_lost_place_are_published(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = PieceReader([piece(1, at=1), piece(2, 3, at=3)], PlaceLost("truncated"))
    settings = source(running, "t", monkeypatch, {"0": lambda mark: reader})
    assert str(running.run(settings)["t"]) == "truncated"
    assert running.numbers() == [1, 2, 3] and running.marks() == {"t/0": b'{"at":3}'}


def test_records_of_one_place_are_skipped_together_or_not_at_all(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message may be two records; a snapshot has no places at all."""
    bad = (BadRow(1, "at 1", "BAD", "is bad", "x"),)
    message = piece(1, 3, 4, at=9, bad=bad, mark_before=lambda record: {"at": [5, 6, 6, 8][record]})
    settings = source(running, "t", monkeypatch, {"0": lambda mark: PieceReader([message])})
    error = running.run(settings)["t"]
    assert isinstance(error, BadRowFound) and str(error).endswith('the next mark is {"at":8}')
    snapshot = piece(1, 3, 4, at=2, bad=bad, mark_before=lambda record: {"at": 2})
    settings = source(running, "u", monkeypatch, {"0": lambda mark: PieceReader([snapshot])})
    assert "can't be skipped" in str(running.run(settings, start="earliest")["u"])


def test_skip_checks_the_mark(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = source(running, "t", monkeypatch, {"0": lambda mark: PieceReader([])}, FORM.read)
    assert asyncio.run(skip_to(settings, '{"at": 4}')) == ("t/0", "")
    assert running.marks() == {"t/0": b'{"at":4}'}
    for mark in ('{"x": 1}', "[]", '{"at": true}', '{"at": 4, "y": 1}', "{" * 100_000):
        with pytest.raises(BadSettings, match=r'or a mark such as \{"at": 3\}'):
            asyncio.run(skip_to(settings, mark))
    assert FORM.fits({"at": 4, "row": 2, "reached": 5, "aside_done": 1})
    with pytest.raises(PlaceLost, match="was not written by this source"):
        FORM.check({"offset": 1})


def test_another_store_at_the_target_is_noticed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a later process, whatever marks that store has."""
    pieces = [piece(1, at=1, is_last=True)]
    settings = source(running, "t", monkeypatch, {"0": lambda mark: PieceReader(pieces)})
    assert running.run(settings) == {"t": None}
    running.status.write()
    other_store = Running(running.folder, FakeStore().transport())
    other_store.client.define("CREATE STREAM s (k BIGINT)")
    settings = source(other_store, "t", monkeypatch, {"0": lambda mark: PieceReader(pieces)})
    for start in ("", "latest"):
        error = other_store.run(settings, start=start)["t"]
        assert isinstance(error, PlaceLost) and str(running.status.path) in str(error)
    assert not other_store.numbers() and not other_store.marks()
    other_store.status.write()
    running.status.path.unlink()
    assert Running(running.folder, other_store.transport).run(settings) == {"t": None}
    assert other_store.numbers() == [1]


def test_two_copies_create_the_stream_at_once(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = "CREATE STREAM s (k BIGINT)"
    running.client.define("DROP STREAM s")
    settings = source(
        running, "t", monkeypatch, {"0": lambda mark: PieceReader([piece(1, at=1, is_last=True)])}
    )
    define = AsyncClient.define

    async def second(self: AsyncClient, sql: str, **options: Any) -> Any:
        running.client.define(statement)
        return await define(self, sql, **options)

    monkeypatch.setattr(AsyncClient, "define", second)
    assert running.run(replace(settings, create=statement)) == {"t": None}
    assert running.numbers() == [1]


def test_a_replay_is_no_mark_of_a_source(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    running.client.publisher("t/replay").publish("s", [{"k": 1}], mark=b'{"row_id":5}')
    settings = source(running, "t", monkeypatch, {"0": lambda mark: PieceReader([])})
    assert isinstance(running.run(settings)["t"], NoMark)
