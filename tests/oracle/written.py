"""Random queries and windows as texts, each with what it means.

A window's meaning is made here and not by the language; a query's is what its text is bound to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from datastem.instants import format_instant
from datastem.schema import StreamSchema
from querystem.language import QueryError, bind_query
from querystem.query import Query
from results.window import UNBOUNDED, Bound, CountWindow, RowWindow, TimeWindow, Window
from tests.oracle.queries import LAST_TS, queries
from tests.querystem.language.support import show_query

_LAST_ROW = 60


@dataclass(frozen=True)
class Scale:
    """Time in steps of `unit` from `origin`, both in microseconds; a unit is whole seconds."""

    origin: int
    unit: int


@dataclass(frozen=True)
class WrittenWindow:
    text: str
    window: Window


@dataclass(frozen=True)
class WrittenQuery:
    """`text` ends before the window; `query` has it."""

    text: str
    window: WrittenWindow
    query: Query

    @property
    def sql(self) -> str:
        return f"{self.text}\n{self.window.text}".strip()


@st.composite
def written_queries(draw: DrawFn, schema: StreamSchema, scale: Scale) -> WrittenQuery:
    """Well formed and accepted."""
    drawn = draw(queries(schema)).with_window(UNBOUNDED)
    if drawn.distinct:
        outputs = [output.expression for output in drawn.outputs]
        columns = tuple(key for key in drawn.order_by if key.expression in outputs)
        drawn = replace(drawn, order_by=columns)
    text, window = show_query(drawn), draw(written_windows(schema, scale))
    try:
        bound = bind_query(text, {schema.name: schema}.get)
    except QueryError:
        reject()
    return WrittenQuery(text, window, bound.with_window(window.window))


def written_windows(schema: StreamSchema, scale: Scale) -> SearchStrategy[WrittenWindow]:
    """Return all that the language has, none that reaches past the retention."""
    longest = LAST_TS if schema.retain is None else min(LAST_TS, schema.retain // scale.unit)
    return st.one_of(
        st.sampled_from([WrittenWindow("", UNBOUNDED), WrittenWindow("UNBOUNDED", UNBOUNDED)]),
        _ranges(scale, longest),
        _times(scale, longest),
        _rows(),
        _counts(),
        _partitions(schema),
    )


@st.composite
def _durations(draw: DrawFn, scale: Scale, most: int, least: int = 0) -> tuple[str, int]:
    micros = draw(st.integers(least, most)) * scale.unit
    seconds = micros // 1_000_000
    texts = [f"{seconds} SECONDS", f"INTERVAL '{seconds}' SECOND", str(seconds)]
    return draw(st.sampled_from([*texts, f"{micros // 1000} MILLISECONDS"])), micros


@st.composite
def _ranges(draw: DrawFn, scale: Scale, longest: int) -> WrittenWindow:
    text, wide = draw(_durations(scale, longest, least=1))
    begin, room = Bound(1 - wide, True), longest - wide // scale.unit
    if not room or draw(st.booleans()):
        return WrittenWindow(f"RANGE {text}", TimeWindow(begin))
    step, slide = draw(_durations(scale, min(room, 7), least=1))
    return WrittenWindow(f"RANGE {text} SLIDE {step}", TimeWindow(begin, None, slide))


@st.composite
def _times(draw: DrawFn, scale: Scale, longest: int) -> WrittenWindow:
    first, begin = draw(_instants(scale, longest - 1))
    last, end = draw(_instants(scale, longest - 1))
    if begin.relative == end.relative and begin.offset > end.offset:
        first, begin, last, end = last, end, first, begin
    past = Bound(end.offset + 1, end.relative)
    return WrittenWindow(f"BEGIN {first} END {last}", TimeWindow(begin, past))


@st.composite
def _instants(draw: DrawFn, scale: Scale, longest: int) -> tuple[str, Bound]:
    if draw(st.booleans()):
        text, back = draw(_durations(scale, longest))
        return (f"NOW - {text}" if back else "NOW"), Bound(-back, True)
    micros = scale.origin + draw(st.integers(0, LAST_TS)) * scale.unit
    return f"'{format_instant(micros)}'", Bound(micros, False)


@st.composite
def _rows(draw: DrawFn) -> WrittenWindow:
    ends = [draw(st.tuples(st.integers(0, _LAST_ROW), st.booleans())) for _ in range(2)]
    begin, end = (Bound(-row if relative else row, relative) for row, relative in ends)
    if begin.relative == end.relative and begin.offset > end.offset:
        begin, end = end, begin
    window = RowWindow(begin, Bound(end.offset + 1, end.relative))
    return WrittenWindow(f"BEGIN {_row(begin)} END {_row(end)}", window)


def _row(bound: Bound) -> str:
    if not bound.relative:
        return f"ROW {bound.offset}"
    return f"ROW LAST - {-bound.offset}" if bound.offset else "ROW LAST"


@st.composite
def _counts(draw: DrawFn) -> WrittenWindow:
    rows, slide = draw(st.integers(1, 30)), draw(st.none() | st.integers(1, 9))
    text = f"ROWS {rows}" if slide is None else f"ROWS {rows} SLIDE {slide}"
    return WrittenWindow(text, CountWindow(rows, slide))


@st.composite
def _partitions(draw: DrawFn, schema: StreamSchema) -> WrittenWindow:
    declared = [column.name for column in schema.columns]
    names = draw(st.lists(st.sampled_from(declared), min_size=1, max_size=2, unique=True))
    rows = draw(st.integers(1, 5))
    text = f"ROWS {rows} PARTITION BY {', '.join(names)}"
    return WrittenWindow(text, CountWindow(rows, None, tuple(names)))
