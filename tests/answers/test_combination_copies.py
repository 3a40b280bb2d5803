"""Copies of joins and UNION ALL: brought up to date by what changed, they are the naive answer."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from datastem.arrays import Int64s, Mask
from datastem.instants import SECOND
from datastem.stem_view import StemView
from psoup.answers.difference import Repair, WholeReason, combinations
from psoup.answers.difference.combinations import CombinedRows
from querystem.language import bind_query
from results.checksum import key_ids
from tests.support.answers.copies import CopyWorld, TreeCopy
from tests.support.answers.trees import TreeMaker
from tests.support.lengths import short_first

JOIN = (
    "SELECT s.a, s.b AS left_b, t.b AS right_b FROM some AS s WINDOW(RANGE 1 HOUR), "
    "short AS t WINDOW(RANGE 10 SECONDS) WHERE s.a = t.a"
)
KEYED = "SELECT s.a, s.b, p.a AS place FROM some AS s, spot AS p WHERE s.b = p.b"
COUNTED = (
    "SELECT s.a, t.b FROM some AS s WINDOW(ROWS 3), short AS t WINDOW(ROWS 2) WHERE s.a >= t.a"
)
EVENTS = "SELECT e.a, l.b FROM early AS e WINDOW(RANGE 20 SECONDS), late AS l WHERE e.a = l.a"
UNION = (
    "SELECT a, b FROM some RANGE 20 SECONDS UNION ALL "
    "SELECT s.a, t.b FROM short AS s, short AS t WHERE s.a = t.a RANGE 20 SECONDS"
)


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CopyWorld]:
    opened = CopyWorld(tmp_path / "store", random.Random(request.node.name))
    yield opened
    opened.close()


def copy_of(world: CopyWorld, sql: str) -> TreeCopy:
    schemas = {name: stream.schema for name, stream in world.streams.items()}
    return TreeCopy(world, world.question(bind_query(sql, schemas.get)))


def fill(world: CopyWorld, *names: str, count: int = 20) -> None:
    for name in names:
        world.fill(name, count)


# ---- anything


def _live(world: CopyWorld, rounds: int) -> None:
    for _ in range(rounds):
        maker = TreeMaker.drawn(world.chance)
        queries = [maker.query(), maker.query(), maker.result()]
        copies = [TreeCopy(world, world.question(query)) for query in queries]
        cuts = world.chance.choice((0.0, 0.3))
        for _ in range(12):
            copy = world.chance.choice(copies)
            for _ in range(world.chance.choice((0, 1, 2, 5))):
                world.happens([leg.stream for leg in copy.query.legs])
            copy.sync(cuts, world.chance.choice((60, 400, 1 << 20)))
            copy.check()


@pytest.mark.parametrize("seed", short_first(range(3)))
def test_oracle_copies_of_random_combinations(world: CopyWorld, seed: int) -> None:
    """Interrupted anywhere, and resumed on any server, they go on."""
    _live(world, 5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", short_first(range(40), 13))
def test_oracle_copies_of_random_combinations_for_long(world: CopyWorld, seed: int) -> None:
    _live(world, 12)


# ---- work


@pytest.mark.parametrize("sql", [JOIN, KEYED, COUNTED, EVENTS, UNION])
def test_with_nothing_new_nothing_is_joined(world: CopyWorld, sql: str) -> None:
    copy = copy_of(world, sql)
    fill(world, *{leg.stream for leg in copy.query.legs})
    assert copy.sync().whole and copy.rows
    assert copy.sync().nothing and copy.joins == 0


@pytest.mark.parametrize("sql", [JOIN, KEYED, UNION])
def test_only_what_changed_is_joined(
    world: CopyWorld, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of combinations as many are made as come."""
    copy = copy_of(world, sql)
    fill(world, *{leg.stream for leg in copy.query.legs}, count=40)
    copy.sync()
    counts = []
    keep = CombinedRows.keep

    def counting(combined: CombinedRows, mask: Mask) -> CombinedRows:
        counts.append(len(combined))
        return keep(combined, mask)

    monkeypatch.setattr(CombinedRows, "keep", counting)
    before = copy.sent
    world.publish("some", [(3, "x", 0)])
    difference = copy.sync()
    assert difference.lacking == copy.sent - before and not len(difference.removed)
    assert 0 < difference.lacking == sum(counts) < len(copy.rows)
    copy.check()


# ---- rows that leave


def test_a_join_of_time_windows_slides_without_removals(world: CopyWorld) -> None:
    copy = copy_of(world, JOIN)
    fill(world, "some", "short")
    copy.sync()
    copy.check()
    world.clock += 30 * SECOND
    difference = copy.sync()
    assert difference.nothing and not copy.rows and difference.row_count == 0


@pytest.mark.parametrize("a", [None, 4], ids=["deleted", "updated"])
def test_a_row_of_a_key_that_ends_leaves_what_joined_it(world: CopyWorld, a: int | None) -> None:
    copy = copy_of(world, KEYED)
    world.publish("spot", [(1, "x", 0), (2, "y", 0)])
    world.publish("some", [(number, "xy"[number % 2], 0) for number in range(10)])
    assert copy.sync().row_count == 10
    world.publish("spot", [(a, "x", 0)])
    difference = copy.sync()
    assert len(difference.removed) == 5 and difference.lacking == (0 if a is None else 5)
    copy.check()


def test_rows_that_newer_ones_push_out_leave_what_joined_them(world: CopyWorld) -> None:
    copy = copy_of(world, COUNTED)
    for name in ("some", "short"):
        world.publish(name, [(1, "x", 0), (1, "y", 0), (1, "z", 0)])
    assert copy.sync().row_count == 6
    world.publish("short", [(1, "n", 0)])
    difference = copy.sync()
    assert (len(difference.removed), difference.lacking) == (3, 3)
    copy.check()


def test_rows_that_pass_the_retention_of_their_stream_are_removed(world: CopyWorld) -> None:
    """Over event time each stream's own NOW says what it retains: nobody else can tell when."""
    copy = copy_of(world, EVENTS)
    world.publish("late", [(1, "x", 0), (1, "y", 10)])
    world.publish("early", [(1, "x", 10)])
    assert copy.sync().row_count == 2
    world.publish("late", [(9, "z", 35)])
    difference = copy.sync()
    assert not difference.whole and len(difference.removed) == 1
    copy.check()


@pytest.mark.parametrize("deleted", [False, True])
def test_a_copy_whose_rows_the_store_has_deleted_is_replaced(
    world: CopyWorld, deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_of(world, EVENTS)
    world.publish("late", [(1, "x", 0)])
    world.publish("early", [(1, "x", 0)])
    copy.sync()
    world.clock += 200 * SECOND
    world.publish("late", [(1, "y", 0)])
    world.publish("early", [(1, "x", 0)])
    if deleted:
        monkeypatch.setattr(StemView, "is_whole", lambda stem, low: False)
    reason = WholeReason.RETENTION if deleted else WholeReason.NONE
    assert copy.sync().reason is reason
    copy.check()


# ---- transfers


@pytest.mark.parametrize("sql", [JOIN, UNION, KEYED])
def test_a_transfer_goes_on_from_every_piece_on_another_server(world: CopyWorld, sql: str) -> None:
    copy = copy_of(world, sql)
    fill(world, *{leg.stream for leg in copy.query.legs})
    copy.sync(cuts=1.0, limit=1)
    assert copy.pieces == copy.sent == len(copy.rows) > 10
    copy.check()
    fill(world, "some", count=3)
    copy.sync(cuts=1.0, limit=1)
    copy.check()


def test_a_transfer_keeps_its_target_while_rows_come(world: CopyWorld) -> None:
    copy = copy_of(world, JOIN)
    fill(world, "some", "short")
    calls = 0
    while not copy._call(1.0, 200, Repair(np.empty(0, np.int64), None), None):
        fill(world, "some", count=2)
        calls += 1
    assert calls > 3
    copy.check()


def test_rows_are_sent_ahead_as_far_as_the_client_is_away(world: CopyWorld) -> None:
    sql = (
        "SELECT s.a, t.b FROM some AS s WINDOW(BEGIN NOW - 1 HOUR END NOW - 10 SECONDS), "
        "short AS t WHERE s.a = t.a"
    )
    copy = copy_of(world, sql)
    fill(world, "some", "short")
    assert copy.sync(away=2 * SECOND).row_count == 0
    assert copy.sync(away=20 * SECOND).row_count > 0
    copy.check()
    assert copy.sync().nothing and copy.mark.horizon is None


# ---- repair


def test_damage_is_repaired(world: CopyWorld) -> None:
    copy = copy_of(world, JOIN)
    fill(world, "some", "short")
    copy.sync()
    lost, broken, *_ = copy.rows
    made_up = copy.rows.pop(lost)
    copy.rows[7] = made_up
    have = np.array(sorted(set(copy.rows) - {broken}), np.int64)
    difference = copy.sync(repair=Repair(np.array([broken]), have))
    assert difference.lacking == 2 and difference.removed.tolist() == [7]
    copy.check()
    fill(world, "some", count=2)
    copy.sync(repair=Repair(np.array([broken]), None))
    copy.check()


# ---- collisions


def test_two_combinations_with_one_id_get_others(
    world: CopyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_of(world, JOIN)
    fill(world, "some", "short")
    copy.sync()

    def colliding(columns: Sequence[pa.Array], length: int) -> Int64s:
        """Few ids for two parts without a salt."""
        ids = key_ids(columns, length)
        return ids % 7 if len(columns) == 2 else ids

    monkeypatch.setattr(combinations, "key_ids", colliding)
    fill(world, "some")
    assert copy.sync().reason is WholeReason.SMALLER and copy.mark.salt == 1
    copy.check()
    fill(world, "some", count=2)
    assert not copy.sync().whole and copy.mark.salt == 1
    copy.check()
