"""Random streams in use: what they hold, what they are asked, and where their time stands."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from datastem.instants import SECOND, from_micros, to_micros
from datastem.schema import OP, Column, StreamSchema
from datastem.types import TIMESTAMP
from results.window import CountWindow, Window
from tests.oracle.queries import LAST_TS
from tests.oracle.samples import sample
from tests.oracle.strategies import Row, nullable, schemas
from tests.oracle.written import (
    Scale,
    WrittenQuery,
    WrittenWindow,
    written_queries,
    written_windows,
)
from tests.support.system.accepted import Accepted

_ROWS = 30
_WINDOWS = 30
_QUERIES = 55
# Event time is about the ten minutes before the stream was made, arrival time the time after.
_EVENT_UNIT = 25 * SECOND
_ARRIVAL_UNIT = 3 * SECOND


@dataclass
class Stream:
    """`step` is where event time stands, in units of its scale. `queries` come again and again."""

    schema: StreamSchema
    scale: Scale
    values: list[Row]
    windows: list[WrittenWindow]
    queries: Iterator[WrittenQuery]
    accepted: Accepted = field(default_factory=Accepted)
    step: int = 0

    def rows(self, dice: Random, count: int) -> list[Row]:
        """As they are published. One in eight is late, and many are equally old.

        With a key one in eight is a delete.
        """
        rows = [dict(dice.choice(self.values)) for _ in range(count)]
        if self.schema.key:
            for row in rows:
                row[OP] = "delete" if dice.random() < 0.125 else "row"
        if self.schema.ordered_by:
            for row in rows:
                row[self.schema.ordered_by] = self._event_time(dice)
        return rows

    def _event_time(self, dice: Random) -> datetime:
        late = dice.random() < 0.125
        step = dice.randint(0, self.step) if late else self.step + dice.randint(0, 1)
        return self.instant(step, dice.choice([0, 0, 0, 1]))

    def instant(self, step: int, micros: int = 0) -> datetime:
        return from_micros(self.scale.origin + step * self.scale.unit + micros)


def random_stream(number: int, name: str) -> Stream:
    """Return a random stream, the same for the same number except for the clock."""
    schema, is_event_time = sample(_schemas(name), 4, number)[-1]
    now = to_micros(datetime.now(UTC).replace(microsecond=0))
    unit = _EVENT_UNIT if is_event_time else _ARRIVAL_UNIT
    scale = Scale(now - LAST_TS * unit if is_event_time else now, unit)
    if schema.retain is not None:
        schema = replace(schema, retain=schema.retain * unit)
    values = st.fixed_dictionaries(
        {written.name: nullable(written.type) for written in schema.columns}
    )
    whole = values.filter(lambda row: all(row[name] is not None for name in schema.key))
    windows = written_windows(schema, scale).filter(
        lambda written: _is_allowed(written.window, schema)
    )
    queries = written_queries(schema, scale).filter(
        lambda written: _is_allowed(written.query.leg.window, schema)
    )
    return Stream(
        schema,
        scale,
        sample(whole, _ROWS, number),
        sample(windows, _WINDOWS, number),
        itertools.cycle(sample(queries, _QUERIES, number)),
    )


def _is_allowed(window: Window, schema: StreamSchema) -> bool:
    """Over a keyed stream there is no SLIDE by rows."""
    return not (schema.key and isinstance(window, CountWindow) and window.slide is not None)


@st.composite
def _schemas(draw: DrawFn, name: str) -> tuple[StreamSchema, bool]:
    """Any columns, arrival time or event time, then half of them with a key; the retention, if any,
    is in units of time."""
    ordered_by = draw(st.sampled_from([None, "at", "ts"]))
    columns = draw(schemas()).columns
    key: tuple[str, ...] = ()
    if ordered_by:
        key = draw(st.sampled_from([(), (columns[0].name,)]))
        columns = (*columns, Column(ordered_by, TIMESTAMP))
    retain = draw(st.sampled_from([None, 12, 60]))
    schema = StreamSchema(name, columns, ordered_by, retain, key=key)
    return schema, ordered_by is not None
