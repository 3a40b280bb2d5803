"""Notes on windows that do what they say, and perhaps not what was meant."""

from __future__ import annotations

from collections.abc import Sequence

from datastem.calendar import Unit
from datastem.instants import DAY
from datastem.schema import StreamSchema
from querystem.language import window_text
from querystem.query import Query
from results.window import Bound, CalendarBound, TimeWindow, Window


def window_notes(query: Query, schemas: Sequence[StreamSchema]) -> list[str]:
    """Return the notes for those who register a query; `schemas` are those of its legs' streams."""
    notes: list[str] = []
    for leg, schema in zip(query.legs, schemas, strict=True):
        if _by_last_row(leg.window, schema):
            notes.append(
                f"{schema.name} has event time, so the present unit of"
                f" {window_text(leg.window)} is that of its last row, not that of the clock"
            )
        instead = _calendar_instead(leg.window)
        if instead is not None:
            notes.append(
                f"{window_text(leg.window)} leaves out the first instant of its days and has that"
                f" of the next; {window_text(instead)} has whole days"
            )
    return list(dict.fromkeys(notes))


def _by_last_row(window: Window, schema: StreamSchema) -> bool:
    by_calendar = isinstance(window, TimeWindow) and window.by_calendar
    return by_calendar and schema.ordered_by is not None


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
