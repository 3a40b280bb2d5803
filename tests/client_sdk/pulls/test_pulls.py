"""Pulls from a running server: what is transferred, what is written, what is remembered."""

from __future__ import annotations

import csv
import json
import os
import secrets
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk import (
    Copies,
    NotFound,
    Pull,
    Store,
    pull_once,
)
from client_sdk.pulls._sinks import FORMATS
from tests.client_sdk.pulls.conftest import (
    DEAR,
    NINE,
    TRADES,
    Place,
    Server,
    came,
    lines,
)
from tests.support.client_sdk.tables import read_sqlite

pytestmark = pytest.mark.process


@pytest.mark.parametrize("form", FORMATS)
def test_only_what_changed_comes_and_only_a_change_is_written(place: Place, form: str) -> None:
    pull = place.pull(f"dear.{form}")
    place.trade(150)
    place.trade(50)
    assert came(pull_once(place.client, pull)) == (1, 1, True, True)
    assert came(pull_once(place.client, pull)) == (1, 0, False, False)
    place.trade(200, 1)
    assert came(pull_once(place.client, pull)) == (2, 1, True, True)
    place.trade(60, 2)
    assert came(pull_once(place.client, pull)) == (2, 0, False, False)
    assert came(pull_once(place.client, replace(pull, always=True))) == (2, 0, False, True)


def test_what_slid_out_is_gone_without_a_message(place: Place) -> None:
    pull = place.pull()
    place.trade(150)
    pull_once(place.client, pull)
    place.trade(60, 11)
    assert came(pull_once(place.client, pull)) == (0, 0, True, True)
    assert lines(pull.to) == ['"symbol","price"']


def test_an_output_that_is_not_as_it_was_left_is_written_again(place: Place) -> None:
    pull = place.pull()
    place.trade(150)
    pull_once(place.client, pull)
    good = pull.to.read_bytes()

    pull.to.unlink()
    assert came(pull_once(place.client, pull)) == (1, 0, False, True)
    pull.to.write_bytes(good.replace(b"150", b"151"))
    assert came(pull_once(place.client, pull)) == (1, 0, False, True)
    assert pull.to.read_bytes() == good

    os.utime(pull.to, (1, 1))
    assert came(pull_once(place.client, pull)) == (1, 0, False, False)


def test_a_lost_memory_costs_a_write_and_a_lost_state_a_whole_answer(place: Place) -> None:
    pull = place.pull()
    place.trade(150)
    pull_once(place.client, pull)
    pull.receipt_path.write_bytes(b'{"format": 1, "cont')
    assert came(pull_once(place.client, pull)) == (1, 0, True, True)
    pull.state_path.unlink()
    report = pull_once(place.client, pull)
    assert came(report) == (1, 1, False, False)
    assert (report.whole, report.reason) == (True, "FIRST")


def test_another_format_or_text_replaces_the_output(place: Place) -> None:
    pull = place.pull("dear.txt", format="csv")
    place.trade(150)
    pull_once(place.client, pull)
    assert pull_once(place.client, replace(pull, format="jsonl")).changed
    assert json.loads(pull.to.read_text()) == {"symbol": "IBM", "price": 150.0}
    cheap = replace(pull, sql="SELECT price FROM trades", format="jsonl")
    assert pull_once(place.client, cheap).changed
    assert json.loads(pull.to.read_text()) == {"price": 150.0}


def test_another_window_is_the_pull_s_own(place: Place) -> None:
    place.trade(150)
    place.trade(160, 30)
    wide = place.pull(window="RANGE 1 HOUR")
    assert pull_once(place.client, wide).rows == 2
    assert pull_once(place.client, place.pull("other.csv")).rows == 1


def test_after_retention_the_answer_comes_whole(place: Place) -> None:
    """Rows of a keyed stream may have ended and been forgotten since."""
    place.client.define(
        "CREATE STREAM seats (seat BIGINT, taken BOOLEAN, at TIMESTAMP) "
        "ORDERED BY at RETAIN 1 DAY KEY (seat)"
    )
    pull = place.pull(sql="SELECT seat, taken FROM seats")
    for day in (0, 2):
        row = {"seat": 7, "taken": day == 2, "at": NINE + timedelta(days=day)}
        place.client.publish("seats", [row])
        report = pull_once(place.client, pull)
    assert (report.whole, report.reason, report.rows) == (True, "RETENTION", 1)
    assert lines(pull.to) == ['"seat","taken"', "7,true"]


EVENTS = st.sampled_from(["trade", "later", "output", "edit", "memory", "state", "client"])


@settings(max_examples=20)
@given(
    st.lists(st.lists(EVENTS, max_size=2), min_size=2, max_size=6),
    st.sampled_from(["dear.csv", "dear.parquet", "dear.db"]),
)
def test_after_every_pull_the_output_is_the_answer(server: Server, rounds, output) -> None:
    """Whatever came, was lost, edited or restarted in between."""
    store = Store(server.address, tenant=f"t{secrets.token_hex(8)}")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        place = Place(stack.enter_context(store.client()), store, Path(folder), server.folder)
        place.client.define(TRADES)
        registered = place.client.register(DEAR, key="dear")
        pull = place.pull(output, key="dear")
        lost = {"output": pull.to, "memory": pull.receipt_path, "state": pull.state_path}
        for minute, events in enumerate(rounds):
            for event in events:
                if event in ("trade", "later"):
                    place.trade(101 + minute, minute * (1 if event == "trade" else 6))
                elif event == "client":
                    second = stack.enter_context(store.client())
                    second.position, place.client = place.client.position, second
                elif event == "edit":
                    pull.to.write_bytes(b"")
                else:
                    lost[event].unlink(missing_ok=True)
            pull_once(place.client, pull)
            assert contents(pull) == place.client.invoke(registered).rows


def contents(pull: Pull) -> list[dict[str, Any]]:
    if pull.format == "parquet":
        files: list[dict[str, Any]] = pyarrow.parquet.read_table(pull.to).to_pylist()
        return files
    if pull.format == "sqlite":
        names = ("symbol", "price")
        return [dict(zip(names, row, strict=True)) for row in read_sqlite(pull.to, pull.name)]
    with pull.to.open() as file:
        return [{**row, "price": float(row["price"])} for row in csv.DictReader(file)]


# ---- registrations that come and go


def test_a_key_is_looked_up_once_and_again_when_it_is_another(place: Place) -> None:
    place.trade(150)
    pull = place.pull(key="dear")
    with pytest.raises(NotFound, match="no registration with client key 'dear'"):
        pull_once(place.client, pull)
    first = place.client.register(DEAR, key="dear")
    assert pull_once(place.client, pull).rows == 1
    place.client.unregister(first)
    with pytest.raises(NotFound):
        pull_once(place.client, pull)
    assert lines(pull.to) == ['"symbol","price"', '"IBM",150']
    place.client.register("SELECT symbol FROM trades", key="dear")
    assert pull_once(place.client, pull).changed
    assert lines(pull.to) == ['"symbol"', '"IBM"']


def test_a_key_with_its_text_is_registered_where_it_is_missing(place: Place) -> None:
    place.trade(150)
    pull = place.pull(key="dear", sql=DEAR)
    assert pull_once(place.client, pull).rows == 1
    (registration,) = place.client.registrations()
    assert registration.key == "dear"
    place.client.unregister(registration.handle)
    place.trade(160)
    assert pull_once(place.client, pull).rows == 2


@pytest.mark.parametrize("by", ["key", "handle", "handle of one without a key", "sql"])
def test_an_expired_registration_is_made_again(place: Place, by: str) -> None:
    place.trade(150)
    second = timedelta(seconds=1)
    if by == "sql":
        pull = place.pull(sql=DEAR, lease=second)
    else:
        key = None if by.endswith("a key") else "dear"
        registered = place.client.register(
            DEAR.replace("100", ":least"), key=key, parameters={"least": 100.0}, lease=second
        )
        pull = place.pull(**({"key": "dear"} if by == "key" else {"handle": registered.hex}))
    pull_once(place.client, pull)
    assert place.expire() >= 1
    assert list(place.client.registrations()) == []
    place.trade(160)
    report = pull_once(place.client, pull)
    assert (report.rows, report.whole) == (2, True)
    place.trade(170)
    assert came(pull_once(place.client, pull)) == (3, 1, True, True)
    (made_again,) = place.client.registrations()
    assert made_again.lease == second


def test_a_dropped_stream_leaves_the_output_alone(place: Place) -> None:
    place.trade(150)
    pull = place.pull()
    pull_once(place.client, pull)
    place.client.define("DROP STREAM trades")
    with pytest.raises(NotFound, match="no stream trades"):
        pull_once(place.client, pull)
    assert lines(pull.to) == ['"symbol","price"', '"IBM",150']


def test_a_snapshot_is_of_one_moment_and_batches_are_the_answer(place: Place) -> None:
    """Two processes on one file, as two openings of it."""
    for number in range(5):
        place.trade(150 + number)
    pull = place.pull()
    pull_once(place.client, pull)
    with Copies(pull.state_path) as copies:
        copy = copies["dear"]
        with copies.snapshot():
            before = copy.to_arrow()
            place.trade(160)
            pull_once(place.client, pull)
            batches = list(copy.batches(rows=2))
        assert [batch.num_rows for batch in batches] == [2, 2, 1]
        assert pa.Table.from_batches(batches) == before
        assert sum(batch.num_rows for batch in copy.batches()) == 6


def test_the_state_is_an_ordinary_copy(place: Place) -> None:
    place.trade(150)
    pull = place.pull()
    report = pull_once(place.client, pull)
    with Copies(pull.state_path) as copies:
        assert copies["dear"].rows() == [{"symbol": "IBM", "price": 150.0}]
        assert copies["dear"].state.position == report.position
