"""Changes of every refresh point: a device that was away has the changes of one that stayed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from client_sdk import AnswerChange, ConnectionFailed, Copies
from datastem.instants import SECOND, from_micros
from psoup.answers.difference import missed
from psoup.server.calls import sync as sync_calls
from tests.client_sdk.copies.rooms import read
from tests.support.client_sdk.inside import START, InsideStore

HITS = "CREATE STREAM hits (page TEXT, size BIGINT)"
BRIEF = "CREATE STREAM brief (page TEXT, size BIGINT) RETAIN 60 SECONDS"
ALARMS = "CREATE STREAM alarms (level BIGINT)"
TOTALS = "SELECT page, count(*) AS n FROM {} GROUP BY page RANGE 20 SECONDS REFRESH EVERY 5 SECONDS"
ON_ALARM = "SELECT page, sum(size) AS s FROM hits GROUP BY page REFRESH ON alarms WHERE level > 1"

Description = tuple[str, object, object, object, str]


@pytest.fixture
def hits(store: InsideStore) -> InsideStore:
    for sql in (HITS, BRIEF, ALARMS):
        store.client.define(sql)
    return store


@pytest.fixture
def home(hits: InsideStore) -> Iterator[Copies]:
    """The copies of a device that stays connected."""
    with Copies.in_memory(clock=hits.now) as copies:
        yield copies


def described(changes: list[AnswerChange]) -> list[Description]:
    return [(c.tag, c.row, c.old, c.at, c.why) for c in changes]


def publish(store: InsideStore, chance: random.Random, stream: str = "hits") -> None:
    row = {"page": chance.choice("abc"), "size": chance.randrange(9)}
    store.client.publish(stream, [row])


def at(seconds: float) -> object:
    return from_micros(START + int(seconds * SECOND))


@pytest.mark.parametrize("sql", [TOTALS.format("hits"), ON_ALARM], ids=["every", "on"])
@pytest.mark.parametrize("seed", [1, 2])
def test_who_was_away_has_the_changes_of_who_stayed(
    hits: InsideStore, copies: Copies, home: Copies, sql: str, seed: int
) -> None:
    chance = random.Random(seed)
    copies.keep("totals", sql, changes="every point")
    home.keep("totals", sql, changes=True)
    copies.sync(hits.client)
    home.sync(hits.client)
    stayed: list[Description] = []
    # Nothing is published at the instant of a point: who looked before would see it without that.
    hits.wait(0.1)
    for step in range(60):
        hits.wait(chance.choice((0.5, 1, 2, 5)))
        if chance.random() < 0.3:
            hits.client.publish("alarms", [{"level": chance.randrange(8)}])
        else:
            home.sync(hits.client)
            publish(hits, chance)
        home.sync(hits.client)
        stayed += described(read(home, "totals"))
        if step % 20 == 19:
            assert copies.sync(hits.client)["totals"].status in ("changed", "unchanged")
    away = described(read(copies, "totals"))
    assert away == stayed and len(away) > 8
    assert copies["totals"].rows() == home["totals"].rows()
    copies.sync(hits.client)
    assert read(copies, "totals") == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_once_however_often_the_line_is_cut(
    hits: InsideStore, copies: Copies, home: Copies, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    for device in (copies, home):
        device.keep("totals", TOTALS.format("hits"), changes="every point")
        device.sync(hits.client)
    for _ in range(40):
        hits.wait(chance.choice((1, 3)))
        publish(hits, chance)
    home.sync(hits.client)
    monkeypatch.setattr(sync_calls, "MAX_POINTS", 4)
    away: list[AnswerChange] = []
    for _ in range(200):
        hits.line.cuts = [chance.randrange(9) for _ in range(3)]
        hits.line.lose_ends = chance.random() < 0.2
        try:
            budget = chance.choice((None, 300, 1000))
            synced = copies.sync(hits.client, byte_budget=budget)["totals"]
        except ConnectionFailed:
            synced = None
        # A program that dies while it reads gets the same changes again.
        with pytest.raises(KeyError), copies.changes("totals") as batch:
            raise KeyError(len(batch))
        if chance.random() < 0.5:
            away += read(copies, "totals")
        if synced is not None and synced.status != "incomplete":
            break
    hits.line.cuts, hits.line.lose_ends = [], False
    copies.sync(hits.client)
    away += read(copies, "totals")
    assert described(away) == described(read(home, "totals"))
    assert len({change.number for change in away}) == len(away)


def test_points_that_are_no_longer_retained_are_named(hits: InsideStore, copies: Copies) -> None:
    copies.keep("totals", TOTALS.format("brief"), changes="every point")
    copies.sync(hits.client)
    for second in range(100):
        hits.wait(1)
        if second % 7 == 0:
            hits.client.publish("brief", [{"page": "a", "size": second}])
    copies.sync(hits.client)
    first, *changes = read(copies, "totals")
    # The present is 100, so rows up to 40 are gone. The window of the point 60 begins there.
    assert (first.tag, first.why, first.at) == ("skip", "retention", at(60))
    assert (first.row, first.old) == (None, None)
    instants = [change.at for change in changes if change.at is not None]
    assert instants[0] == at(60) and len(instants) > 1 and instants == sorted(instants)
    assert all(change.tag != "skip" for change in changes)


def test_a_year_of_seconds_is_bounded(
    hits: InsideStore, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points without changes cost nothing, and of too many changes the newest come."""
    sql = "SELECT count(*) AS n FROM hits RANGE 10 SECONDS REFRESH EVERY 1 SECOND"
    copies.keep("n", sql, changes="every point")
    copies.sync(hits.client)
    searches = Mock(wraps=missed.next_point)
    monkeypatch.setattr("psoup.answers.difference.result_copy.next_point", searches)
    for _ in range(12):
        hits.wait(30 * 86_400)
        hits.client.publish("hits", [{"page": "a", "size": 1}])
    hits.wait(30 * 86_400)
    copies.sync(hits.client)
    changes = read(copies, "n")
    assert [(change.row or {})["n"] for change in changes] == [1, 0] * 12
    assert searches.call_count <= 3 * len(changes)
    monkeypatch.setattr(missed, "MAX_MISSED", 15)
    for _ in range(40):
        hits.wait(1)
        hits.client.publish("hits", [{"page": "a", "size": 1}])
    copies.sync(hits.client)
    first, *changes = read(copies, "n")
    seconds = hits.clock // SECOND
    assert (first.tag, first.why, first.at) == ("skip", "too many", changes[0].at)
    assert changes[0].at == from_micros((seconds - 14) * SECOND)
    assert len(changes) == 1, "from then on ten rows are in each window"


def test_too_many_rows_that_refresh(
    hits: InsideStore, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies.keep("totals", ON_ALARM, changes="every point")
    copies.sync(hits.client)
    monkeypatch.setattr(missed, "MAX_MISSED", 4)
    for second in range(10):
        hits.wait(1)
        hits.client.publish("hits", [{"page": "a", "size": 1}])
        hits.client.publish("alarms", [{"level": 9 if second % 2 else 0}, {"level": 9}])
    copies.sync(hits.client)
    first, *changes = read(copies, "totals")
    assert (first.tag, first.why, first.at) == ("skip", "too many", at(7))
    assert [(change.at, (change.row or {})["s"]) for change in changes] == [
        (at(second), second) for second in (7, 8, 9, 10)
    ]


def test_changes_can_become_those_of_every_point(hits: InsideStore, copies: Copies) -> None:
    copies.keep("totals", TOTALS.format("hits"), changes=True)
    copies.sync(hits.client)
    hits.client.publish("hits", [{"page": "a", "size": 1}])
    hits.wait(5)
    copies.sync(hits.client)
    copies.keep("totals", TOTALS.format("hits"), changes="every point")
    hits.client.publish("hits", [{"page": "a", "size": 1}])
    hits.wait(10)
    hits.client.publish("hits", [{"page": "a", "size": 1}])
    hits.wait(5)
    synced = copies.sync(hits.client)["totals"]
    assert not synced.whole and synced.status == "changed"
    changes = read(copies, "totals")
    assert [(change.at, (change.row or {})["n"]) for change in changes] == [
        (at(5), 1),
        (at(10), 2),
        (at(15), 3),
        (at(20), 2),
    ]


def test_a_copy_that_came_whole_names_what_is_missing(
    hits: InsideStore, filed: Copies, tmp_path: Path
) -> None:
    filed.keep("totals", TOTALS.format("hits"), changes="every point")
    filed.sync(hits.client)
    hits.client.publish("hits", [{"page": "a", "size": 1}])
    hits.wait(10)
    tokens = hits.core.tokens
    hits.core.tokens = type(tokens)(b"another ", b"k" * 32)
    try:
        assert filed.sync(hits.client)["totals"].reason == "FOREIGN_TOKEN"
    finally:
        hits.core.tokens = tokens
    skipped, change = read(filed, "totals")
    assert (skipped.tag, skipped.why, skipped.at) == ("skip", "no copy", at(10))
    assert (change.tag, change.row) == ("+", {"page": "a", "n": 1})


def test_what_has_no_points_is_refused(hits: InsideStore, copies: Copies) -> None:
    copies.keep("rows", "SELECT page FROM hits RANGE 1 HOUR", changes="every point")
    inside = "SELECT page FROM hits WINDOW(RANGE 1 HOUR REFRESH EVERY 5 SECONDS)"
    copies.keep("inside", f"{inside} UNION ALL SELECT page FROM brief", changes="every point")
    synced = copies.sync(hits.client)
    for name in ("rows", "inside"):
        error = synced[name].error
        assert error is not None and error.reason == "NO_POINTS" and "REFRESH" in str(error)
    with pytest.raises(ValueError, match="one position"):
        copies.sync(hits.client, one_position=True)
    with pytest.raises(ValueError, match="every point"):
        copies.keep("other", "SELECT page FROM hits", changes="all points")  # type: ignore[arg-type]


# Streams whose rows wait, are valid for a time or replace each other, and all kinds of windows.
KINDS = (
    "CREATE STREAM plans (n BIGINT, at TIMESTAMP) ORDERED BY at CLOCK",
    "CREATE STREAM states (k BIGINT, n BIGINT, at TIMESTAMP) KEY (k) ORDERED BY at CLOCK",
    "CREATE STREAM terms (n BIGINT, s TIMESTAMP, e TIMESTAMP) VALID FROM s UNTIL e",
    "CREATE STREAM items (n BIGINT)",
    "CREATE VIEW recent AS SELECT n FROM items RANGE 7 SECONDS",
)
SELECTIONS = (
    "SELECT n FROM plans RANGE 5 SECONDS",
    "SELECT n FROM plans ROWS 2",
    "SELECT n FROM plans WHERE at - NOW < INTERVAL '3' SECOND",
    "SELECT k, n FROM states",
    "SELECT n FROM terms",
    "SELECT n FROM items RANGE 10 SECONDS SLIDE 3 SECONDS",
    "SELECT n FROM items BEGIN NOW - 9 SECONDS END NOW - 4 SECONDS",
    "SELECT count(*) AS n FROM recent",
    "SELECT count(*) AS n FROM (SELECT n FROM items) AS x WINDOW(RANGE 6 SECONDS)",
    "SELECT i.n, s.k FROM items AS i WINDOW(RANGE 8 SECONDS), states AS OF i.ts AS s"
    " WHERE i.n = s.k",
)


def test_every_kind_of_row_and_window(store: InsideStore, home: Copies) -> None:
    for sql in KINDS:
        store.client.define(sql)
    chance, names = random.Random(5), [f"c{number}" for number in range(len(SELECTIONS))]
    with Copies.in_memory(clock=store.now) as copies:
        for name, sql in zip(names, SELECTIONS, strict=True):
            copies.keep(name, f"{sql} REFRESH EVERY 2 SECONDS", changes="every point")
            home.keep(name, f"{sql} REFRESH EVERY 2 SECONDS", changes=True)
        copies.sync(store.client)
        home.sync(store.client)
        store.wait(0.1)
        stayed: dict[str, list[Description]] = {name: [] for name in names}
        away: dict[str, list[Description]] = {name: [] for name in names}
        for step in range(90):
            store.wait(1)
            instant = [from_micros(store.clock + d * SECOND) for d in (-1, 0, 3, 4, 7)]
            row = [
                ("plans", {"n": step, "at": chance.choice(instant)}),
                ("states", {"k": step % 3, "n": step, "at": chance.choice(instant)}),
                ("terms", {"n": step, "s": chance.choice(instant[:3]), "e": instant[-1]}),
                ("items", {"n": step % 3}),
            ]
            stream, values = chance.choice(row)
            store.client.publish(stream, [values])
            home.sync(store.client)
            if step % 30 == 29:
                copies.sync(store.client)
            for name in names:
                stayed[name] += described(read(home, name))
                away[name] += described(read(copies, name))
        assert away == stayed and all(len(changes) > 5 for changes in away.values())
