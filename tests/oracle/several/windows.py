"""Random windows as texts, each with what it means."""

from __future__ import annotations

from datastem.instants import SECOND, format_instant
from datastem.schema import StreamSchema
from results.window import UNBOUNDED, Bound, CountWindow, RowWindow, TimeWindow
from tests.oracle.several.chance import Chance
from tests.oracle.several.worlds import LAST
from tests.oracle.written import WrittenWindow

# In seconds: the longest period of a REFRESH EVERY.
LONGEST_PERIOD = 5


def every(chance: Chance) -> str:
    return f"REFRESH EVERY {chance.number(1, LONGEST_PERIOD)} SECONDS"


def any_window(chance: Chance, schema: StreamSchema, origin: int) -> WrittenWindow:
    """One that the stream does not refuse: not past its retention, no SLIDE of rows with a key.

    Fixed instants are at most LAST seconds after `origin`.
    """
    match chance.number(0, 9):
        case 0 | 1 | 7 | 8:
            return range_window(chance, schema.retain)
        case 2:
            return WrittenWindow("NOW", TimeWindow(Bound(0, True)))
        case 3:
            return _between(chance, schema.retain, origin)
        case 4:
            return _rows(chance)
        case 5:
            return _partition(chance, schema)
    rows = chance.number(1, 5)
    if schema.key or chance.one_in(2):
        return WrittenWindow(f"ROWS {rows}", CountWindow(rows))
    slide = chance.number(1, 4)
    return WrittenWindow(f"ROWS {rows} SLIDE {slide}", CountWindow(rows, slide))


def range_window(chance: Chance, retain: int | None) -> WrittenWindow:
    """RANGE, or none at all: what any stream takes that keeps its rows for so long."""
    longest = LAST if retain is None else retain // SECOND
    seconds = max(chance.number(1, longest) for _ in range(2))
    begin = Bound(1 - seconds * SECOND, True)
    if chance.one_in(6):
        return WrittenWindow("UNBOUNDED", UNBOUNDED)
    if seconds < longest and chance.one_in(4):
        slide = chance.number(1, min(7, longest - seconds))
        text = f"RANGE {seconds} SECONDS SLIDE {slide} SECONDS"
        return WrittenWindow(text, TimeWindow(begin, None, slide * SECOND))
    return WrittenWindow(f"RANGE {seconds} SECONDS", TimeWindow(begin))


def _between(chance: Chance, retain: int | None, origin: int) -> WrittenWindow:
    longest = LAST if retain is None else retain // SECOND
    (first, begin), (last, end) = (_instant(chance, longest - 1, origin) for _ in range(2))
    if begin.relative == end.relative and begin.offset > end.offset:
        first, begin, last, end = last, end, first, begin
    reaches_now = end == Bound(0, True)
    window = TimeWindow(begin, None if reaches_now else Bound(end.offset + 1, end.relative))
    return WrittenWindow(f"BEGIN {first} END {last}", window)


def _instant(chance: Chance, longest: int, origin: int) -> tuple[str, Bound]:
    if chance.one_in(2):
        seconds = chance.number(0, longest)
        return (f"NOW - {seconds} SECONDS" if seconds else "NOW"), Bound(-seconds * SECOND, True)
    micros = origin + chance.number(0, LAST) * SECOND
    return f"'{format_instant(micros)}'", Bound(micros, False)


def _rows(chance: Chance) -> WrittenWindow:
    begin, end = (_row(chance) for _ in range(2))
    if begin.relative == end.relative and begin.offset > end.offset:
        begin, end = end, begin
    window = RowWindow(begin, Bound(end.offset + 1, end.relative))
    return WrittenWindow(f"BEGIN {_row_text(begin)} END {_row_text(end)}", window)


def _row(chance: Chance) -> Bound:
    row = chance.number(0, 6)
    return Bound(-row, True) if chance.one_in(2) else Bound(row, False)


def _row_text(bound: Bound) -> str:
    if not bound.relative:
        return f"ROW {bound.offset}"
    return f"ROW LAST - {-bound.offset}" if bound.offset else "ROW LAST"


def _partition(chance: Chance, schema: StreamSchema) -> WrittenWindow:
    name, rows = chance.pick([column.name for column in schema.columns]), chance.number(1, 3)
    by = f"PARTITION BY {name}"
    text = chance.pick([f"ROWS {rows} {by}", f"{by} ROWS {rows}"])
    return WrittenWindow(text, CountWindow(rows, None, (name,)))
