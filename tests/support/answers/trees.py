"""Random trees over several streams with the columns `a`, `b` and `ts`, and the streams."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from datastem.instants import SECOND
from datastem.types import BIGINT, BOOLEAN, TEXT, TIMESTAMP
from querystem.expressions import TRUE, Call, ColumnRef, Expression, Literal, Op
from querystem.grouping import Aggregate, Function, Grouping, aggregate_name, key_name
from querystem.legs import Leg
from querystem.query import Item, Output, Query, SortKey
from querystem.sources import From, SetOperation, SetOperator, item_column
from results.window import UNBOUNDED, Bound, CountWindow, RowWindow, TimeWindow, Window

START = 1_700_000_000 * SECOND
EVENT = {
    "early": "CREATE STREAM early (a BIGINT, b TEXT, at TIMESTAMP) ORDERED BY at",
    "late": "CREATE STREAM late (a BIGINT, b TEXT, at TIMESTAMP) ORDERED BY at RETAIN 30 SECONDS",
    "names": "CREATE STREAM names (a BIGINT, b TEXT, at TIMESTAMP) KEY (b) ORDERED BY at "
    "RETAIN 40 SECONDS",
}
ARRIVAL = {
    "some": "CREATE STREAM some (a BIGINT, b TEXT)",
    "short": "CREATE STREAM short (a BIGINT, b TEXT) RETAIN 30 SECONDS",
    "spot": "CREATE STREAM spot (a BIGINT, b TEXT) KEY (b)",
}
STREAMS = EVENT | ARRIVAL
KEYED = ("names", "spot")

_STILL: Sequence[Window] = (
    UNBOUNDED,
    TimeWindow(Bound(START + 10 * SECOND, False)),
    RowWindow(Bound(-9, True), Bound(1, True)),
    RowWindow(Bound(3, False), Bound(20, False)),
)
_MOVING: Sequence[Window] = (
    TimeWindow(Bound(-5 * SECOND + 1, True)),
    TimeWindow(Bound(-20 * SECOND + 1, True)),
    TimeWindow(Bound(-20 * SECOND + 1, True), slide=7 * SECOND),
    TimeWindow(Bound(-25 * SECOND, True), Bound(-3 * SECOND, True)),
    CountWindow(5),
    CountWindow(2, partition_by=("b",)),
)


@dataclass(frozen=True)
class TreeMaker:
    """Draws trees. `still` are streams whose references may not depend on NOW, since they have the
    other kind of time."""

    chance: random.Random
    streams: Sequence[str]
    still: Sequence[str] = ()

    @classmethod
    def drawn(cls, chance: random.Random) -> TreeMaker:
        event, arrival = list(EVENT), list(ARRIVAL)
        mixed = (event, [chance.choice(arrival)]), (arrival, [chance.choice(event)])
        return cls(chance, *chance.choices([(event, []), (arrival, []), *mixed], (3, 3, 1, 1))[0])

    def query(self) -> Query:
        """Return a query whose copy is one of combinations: a join, a UNION ALL, or both."""
        match self.chance.randrange(4):
            case 0:
                items: list[Item] = [self._union(self.chance.randint(2, 3))]
            case 1:
                items = [self._leg(), self._union(2)]
                self.chance.shuffle(items)
            case _:
                items = [self._leg() for _ in range(self.chance.choice((2, 2, 3)))]
        columns = [reference for number in range(len(items)) for reference in _columns(number)]
        outputs = [Output(f"c{place}", column) for place, column in enumerate(columns)]
        ts = Output("ts", ColumnRef(item_column(0, "ts"), TIMESTAMP))
        return Query(self._from(items), (ts, *outputs), order_by=self._order(columns))

    def result(self) -> Query:
        """Return a query whose copy is one of results."""
        query = self.query()
        match self.chance.randrange(4 if not self.still else 3):
            case 0:
                return replace(query, limit=4, offset=self.chance.randrange(2))
            case 1:
                return replace(query, distinct=True, order_by=(), outputs=query.outputs[1:2])
            case 2:
                return _counted(query)
            case _:
                inner = replace(query, order_by=(), over=self.chance.choice(_MOVING[:5]))
                outputs = [
                    Output(output.name, ColumnRef(item_column(0, output.name), output.type))
                    for output in inner.columns
                ]
                return Query(From((inner,)), tuple(outputs))

    def _leg(self) -> Leg:
        still = self.still and self.chance.random() < 0.4
        stream = self.chance.choice(self.still if still else self.streams)
        window = self.chance.choice(_STILL if still else (*_STILL, *_MOVING, *_MOVING))
        if stream in KEYED and self.chance.random() < 0.6:
            window = UNBOUNDED
        if stream in KEYED and isinstance(window, TimeWindow):
            window = replace(window, slide=None)
        return Leg(stream, self._where(), window)

    def _where(self) -> Expression:
        if self.chance.random() < 0.5:
            return TRUE
        return Call(Op.GT, (ColumnRef("a", BIGINT), Literal(2, BIGINT)), BOOLEAN)

    def _union(self, count: int) -> SetOperation:
        branches = tuple(self._branch() for _ in range(count))
        return SetOperation(SetOperator.UNION_ALL, branches)

    def _branch(self) -> Query:
        if self.chance.random() < 0.3:
            first, second = _columns(0)[0], _columns(1)[1]
            source = self._from([self._leg(), self._leg()])
            return Query(source, (Output("a", first), Output("b", second)))
        number = self.chance.choice(("a", "row_id"))
        outputs = Output("a", ColumnRef(number, BIGINT)), Output("b", ColumnRef("b", TEXT))
        return Query(self._leg(), outputs)

    def _from(self, items: Sequence[Item]) -> From:
        pairs = zip(range(len(items) - 1), range(1, len(items)), strict=True)
        compare = (Op.EQ, Op.EQ, Op.EQ, Op.LT)
        on = [
            Call(self.chance.choice(compare), (_columns(n)[0], _columns(m)[0]), BOOLEAN)
            for n, m in pairs
            if self.chance.random() < 0.9
        ]
        if not on:
            return From(tuple(items))
        return From(tuple(items), on[0] if len(on) == 1 else Call(Op.AND, tuple(on), BOOLEAN))

    def _order(self, columns: Sequence[ColumnRef]) -> tuple[SortKey, ...]:
        if self.chance.random() < 0.7:
            return ()
        return (SortKey(self.chance.choice(columns), self.chance.random() < 0.5, True),)


def _columns(number: int) -> tuple[ColumnRef, ColumnRef]:
    first, second = item_column(number, "a"), item_column(number, "b")
    return ColumnRef(first, BIGINT), ColumnRef(second, TEXT)


def _counted(query: Query) -> Query:
    """Return how many rows of a query have each value of an output."""
    key = query.outputs[1].expression
    grouping = Grouping((key,), (Aggregate(Function.COUNT, None, False, BIGINT),))
    outputs = (
        Output("key", ColumnRef(key_name(0), key.type)),
        Output("n", ColumnRef(aggregate_name(0), BIGINT)),
    )
    return replace(query, outputs=outputs, grouping=grouping, order_by=())
