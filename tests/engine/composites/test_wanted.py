"""Only combinations that a query wants are stored, each once, whichever queries come and go."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from pyspark.sql import SparkSession

from datastem.schema import StreamSchema
from datastem.types import BOOLEAN, DOUBLE
from psoup.engine.composites import keeping
from psoup.engine.composites.worker import are_among
from psoup.store import Store
from psoup.store.composite_marks import CompositeMark
from psoup.store.delta import commits as delta_commits
from psoup.store.delta import durable
from psoup.store.delta.reading import reader
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Literal, Op
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is
from tests.support.engine.composites import (
    Joined,
    assert_boxes,
    assert_complete,
    combinations,
    equal,
    register_join,
)
from tests.support.engine.killing import Killed, Killer
from tests.support.engine.pump import QUIET, Pump
from tests.support.engine.reading import matched
from tests.support.lengths import short_first

OTHER = StreamSchema("other", READINGS.columns)


def below(limit: float) -> Expression:
    return Call(Op.LT, (ColumnRef("value", DOUBLE), Literal(limit, DOUBLE)), BOOLEAN)


def between(low: float, high: float) -> Expression:
    return Call(Op.AND, (above(low), below(high)), BOOLEAN)


def test_a_combination_is_among_others() -> None:
    dice = np.random.default_rng(3)
    for legs in (1, 2, 3):
        for size in (0, 1, 50):
            parts, others = (
                [dice.integers(0, 6, count) for _ in range(legs)] for count in (40, size)
            )
            existing = set(zip(*(column.tolist() for column in others), strict=True))
            expected = [row in existing for row in zip(*(p.tolist() for p in parts), strict=True)]
            assert are_among(parts, others).tolist() == expected


def test_predicates_leave_the_ranges_of_a_mark() -> None:
    mark = replace(CompositeMark.without_box(2), since=0, predicates=((3, 6), (8, 9)))
    assert mark.without_predicates([4, 8]).predicates == ((3, 4), (5, 6))
    assert mark.without_predicates([5, 7]).predicates == ((3, 5), (8, 9))
    stored = [id_ for id_ in range(10) if mark.without_predicates([3]).has_predicate(id_)]
    assert stored == [4, 5, 8]
    assert not replace(mark, since=None).has_predicate(4)


@pytest.mark.spark
def test_rows_of_different_queries_are_not_combined(store: Store, spark: SparkSession) -> None:
    """Two queries about other values of both legs: without a condition between those, each row of
    one query is joined with those of the other, and nothing of it is stored."""
    author = Author(store)
    streams = author.create(READINGS), author.create(OTHER)
    pump = Pump(store, spark, QUIET)
    queries = [
        [(streams[0], between(0.0, 4.0)), (streams[1], between(9.0, 14.0))],
        [(streams[0], between(9.0, 14.0)), (streams[1], between(0.0, 4.0))],
    ]
    joins = [register_join(author, legs, [equal(0, 1)]) for legs in queries[:1]]
    for number in range(3):
        for stream in streams:
            values = [float(value) for value in range(16)]
            author.publish(stream, readings([1] * 16, values))
        if number == 1:
            # The second query comes when rows of both are there.
            joins.append(register_join(author, queries[1], [equal(0, 1)]))
        pump.run()
    # 3 batches with the values 1 to 3 of one leg and 10 to 13 of the other, in both directions.
    assert len(combinations(store, joins[0].composite_id)) == 2 * (3 * 3) * (3 * 4)
    for join in joins:
        assert_complete(store, join)


PREDICATES = (TRUE, sensor_is(1), sensor_is(2), above(3.0), below(3.0), between(2.0, 5.0))


class QueryLife:
    """Queries over one composite that come, end and come again, while rows arrive and the engine is
    killed."""

    def __init__(self, store: Store, spark: SparkSession, dice: random.Random) -> None:
        self.store, self.spark, self.dice = store, spark, dice
        self.author = Author(store)
        first, second = self.author.create(READINGS), self.author.create(OTHER)
        self.streams = dice.choice([(first, second), (first, first), (first, second, second)])
        self.settings = replace(
            QUIET,
            slice_rows=dice.choice([3, 1000]),
            task_bytes=dice.choice([1, 4 << 20]),
            spark_join_factor=math.inf,
            merge_files=3,
        )
        self.pump = Pump(store, spark, self.settings)
        self.joins: list[Joined] = []
        self.deaths = 0

    def live(self, turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
        for _ in range(turns):
            self._change()
            self._guard(self.pump.step, monkeypatch)
            for _ in range(self.dice.randrange(4)):
                self._guard(self._work, monkeypatch)
            assert_boxes(self.store, exact=False)
        self.pump.run()
        for join in self.joins:
            self._check(join)

    def _change(self) -> None:
        """Register or end a query, and publish rows."""
        dice, streams = self.dice, self.streams
        if dice.random() < 0.5 or not self.joins:
            legs = [(stream, dice.choice(PREDICATES)) for stream in streams]
            factors = [equal(leg, leg + 1) for leg in range(len(streams) - 1)]
            self.joins.append(register_join(self.author, legs, factors))
        elif dice.random() < 0.5:
            self.author.unregister(self.joins.pop(dice.randrange(len(self.joins))).handle)
        for stream in sorted(set(streams)):
            count = dice.randrange(1, 6)
            values = [float(dice.randrange(7)) for _ in range(count)]
            sensors = [dice.randrange(1, 4) for _ in range(count)]
            self.author.publish(stream, readings(sensors, values))

    def _work(self) -> None:
        ledger = self.pump.ledger
        for chore in (self.pump.backfill, self.pump.growing, self.pump.maintenance):
            if chore.advance(ledger):
                return

    def _guard(self, work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
        """Work, and perhaps be killed between two commits."""
        if self.dice.random() < 0.5:
            monkeypatch.setattr(delta_commits, "put_if_absent", Killer(self.dice.randrange(10)))
        try:
            work()
        except Killed:
            self.deaths += 1
            monkeypatch.setattr(delta_commits, "put_if_absent", durable.put_if_absent)
            self.pump = Pump(self.store, self.spark, self.settings)
        monkeypatch.setattr(delta_commits, "put_if_absent", durable.put_if_absent)

    def _check(self, join: Joined) -> None:
        """The combinations that a query's predicate matches are those of the naive join."""
        assert_complete(self.store, join, exact=False)
        parts = combinations(self.store, join.composite_id)
        found = [parts[id_] for id_ in matched(self.store, join.predicate_id)]
        assert len(found) == len(set(found))
        sensors = [self._by_sensor(stream) for stream in self.streams]
        rows = [
            [
                [row for row in matched(self.store, predicate) if row in ids]
                for predicate, ids in zip(join.legs, sensor_rows, strict=True)
            ]
            for sensor_rows in zip(*sensors, strict=True)
        ]
        assert set(found) == {parts for legs in rows for parts in itertools.product(*legs)}

    def _by_sensor(self, stream: int) -> list[set[int]]:
        table = self.store.stem_snapshot(self.store.epochs.latest()[1], stream)
        folder = self.store.stem(stream)
        sensors: list[set[int]] = [set() for _ in range(4)]
        for file in table.files.values():
            for row in reader(folder.root, file).read(["_row_id", "sensor"]).to_pylist():
                sensors[row["sensor"]].add(row["_row_id"])
        return sensors


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", short_first(range(12), 1))
def test_oracle_queries_that_come_and_go(
    store: Store, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(keeping, "UNIT_ROWS", dice.choice([4, 1 << 15]))
    life = QueryLife(store, spark, dice)
    life.live(6 if seed == 0 else 14, monkeypatch)
    assert life.joins
