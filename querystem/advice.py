"""Notes on windows, and on NOW, that do what they say, and perhaps not what was meant."""

from __future__ import annotations

from collections.abc import Sequence

from datastem.calendar import Unit
from datastem.instants import DAY
from datastem.schema import StreamSchema
from querystem.base_rows import combines, obstacle
from querystem.expressions import TRUE
from querystem.identity import slides
from querystem.language import window_text
from querystem.language.tokens.durations import write_duration
from querystem.query import Query
from querystem.visibility import visibility_of
from results.window import UNBOUNDED, Bound, CalendarBound, TimeWindow, Window


def window_notes(query: Query, schemas: Sequence[StreamSchema]) -> list[str]:
    """Return the notes for those who register a query; `schemas` are those of its legs' streams."""
    notes: list[str] = []
    for leg, schema in zip(query.legs, schemas, strict=True):
        window = leg.written_window
        if _by_last_row(window, schema):
            notes.append(
                f"{schema.name} has event time, so the present unit of {window_text(window)} is"
                f" that of its last row; with ORDERED BY {schema.labelled.event_time} CLOCK it"
                " would be that of the clock"
            )
        instead = _calendar_instead(window)
        if instead is not None:
            notes.append(
                f"{window_text(window)} leaves out the first instant of its days and has that"
                f" of the next; {window_text(instead)} has whole days"
            )
    return list(dict.fromkeys(notes))


def now_notes(query: Query, schemas: Sequence[StreamSchema]) -> list[str]:
    """Return the notes about NOW in expressions for those who register a query; `schemas` are those
    of its legs' streams."""
    notes: list[str] = []
    visibilities = [visibility_of(leg.when) for leg in query.legs]
    # The combinations of a join that slides become visible one by one.
    inner = query.inner_queries if slides(query) else query.all_queries
    computed = any(part.has_now for part in inner) or None in visibilities
    if computed and query.refresh is None:
        notes.append(
            "NOW makes another answer of this query at every instant, and a watch of it is woken by"
            " rows alone; REFRESH EVERY 1 MINUTE gives it instants of its own"
        )
    for leg, schema, visibility in zip(query.legs, schemas, visibilities, strict=True):
        if visibility is None or leg.when == TRUE:
            continue
        if visibility.begins and schema.retain is not None and not schema.key:
            notes.append(
                f"rows of {schema.name} leave after {write_duration(schema.retain)} by RETAIN, also"
                " those that NOW has yet to show"
            )
        by_ts = leg.valid is None and leg.window == UNBOUNDED and "ts" in visibility.reads
        if visibility.ends and by_ts:
            notes.append(
                f"ts is compared with NOW, and all rows of {schema.name} are looked at: RANGE, or"
                " BEGIN NOW - … END NOW, holds rows by their ts"
            )
    return list(dict.fromkeys(notes))


def base_rows_notes(query: Query, reads_all: bool) -> list[str]:
    """Return the note for those who register a query of which no base rows are sent, if it is made
    of several. `reads_all` says that the caller may read all rows of all its streams."""
    if not combines(query):
        return []
    why = obstacle(query)
    if not why and not reads_all:
        why = "a row policy of a stream binds you, or you may read a stream through a view only"
    return [f"copies of it are results, since no base rows are sent: {why}"] if why else []


def _by_last_row(window: Window, schema: StreamSchema) -> bool:
    by_calendar = isinstance(window, TimeWindow) and window.by_calendar
    return by_calendar and not schema.now_is_clock


def _calendar_instead(window: Window) -> TimeWindow | None:
    """Return the calendar window for a window of whole days that slides by its length."""
    if not isinstance(window, TimeWindow) or not isinstance(window.begin, Bound):
        return None
    slide = window.slide
    if slide is None or slide % DAY or 1 - window.begin.offset != slide:
        return None
    weeks, days = divmod(slide // DAY, 7)
    unit, count = (Unit.WEEK, weeks) if not days else (Unit.DAY, slide // DAY)
    return TimeWindow(CalendarBound(unit, count), CalendarBound(unit, 0))
