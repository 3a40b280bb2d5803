"""Checks of windows: past a stream's retention, over rows without ids, or on two clocks; and of
rows on another clock that would refresh a query."""

from __future__ import annotations

from collections.abc import Sequence

from datastem.schema import StreamSchema
from querystem.language.errors import NotYet, RefreshProblem, Span, WindowProblem
from querystem.language.tokens.durations import write_duration
from querystem.legs import Leg
from querystem.query import Query
from querystem.sources import From, SetOperation
from querystem.validity import PRESENT
from results.window import CountWindow, RowWindow, TimeWindow, Window


def check_retention(
    window: Window, schema: StreamSchema, span: Span | None, period: int | None = None
) -> None:
    """Refuse a time window that at some NOW holds an instant which is no longer retained, and any
    window that would lose all its rows before the next refresh.

    A row is retained while ts > NOW - RETAIN. SLIDE, and before it a refresh every `period`, set a
    window back by up to a microsecond less than themselves. A constant that has aged past the
    retention is no error. Windows over row ids or counts hold the rows that remain, and a keyed
    stream retains its current rows, however old.
    """
    retain = schema.retention
    if retain is None or (schema.key and schema.validity is None):
        return
    oldest, behind = _reach(window), sum(step - 1 for step in (_slide(window), period) if step)
    if oldest - behind > -retain:
        return
    limit = write_duration(retain)
    by_calendar = isinstance(window, TimeWindow) and window.by_calendar
    hint = _step_hint(limit) if behind else _retention_hint(limit)
    raise WindowProblem(
        f"the window reaches past the retention: {schema.name} keeps a row for {limit}",
        span,
        hint=_calendar_hint(-oldest) if by_calendar else hint,
        reason="WINDOW_PAST_RETENTION",
    )


def reaches_past(query: Query, schema: StreamSchema) -> bool:
    """Return whether a window of a query over a stream would be refused for the RETAIN of
    `schema`."""
    looked_up = any(leg.as_of is not None and leg.stream == schema.name for leg in query.legs)
    try:
        for number, leg in enumerate(query.legs):
            period = query.period_of(number)
            if leg.as_of is not None:
                continue
            if leg.stream == schema.name:
                check_retention(leg.written_window, schema, None, period)
            if looked_up:
                check_versions(leg.window, schema, None, period)
    except WindowProblem:
        return True
    return False


def _reach(window: Window) -> int:
    """Return the distance from NOW of a window's first instant, or of its last if that is earlier;
    0 if neither moves with NOW."""
    if not isinstance(window, TimeWindow):
        return 0
    begin, end = window.begin, window.end
    oldest = begin.farthest if begin and begin.relative else 0
    newest = end.nearest - 1 if end and end.relative else 0
    return min(oldest, newest)


def _slide(window: Window) -> int | None:
    """Return how far SLIDE sets back the NOW of a window; None if it sets back nothing, or rows."""
    return window.slide if isinstance(window, TimeWindow) else None


def check_over(window: Window, span: Span) -> None:
    """Refuse a window over an inner query that takes more than the ts of its rows."""
    if isinstance(window, RowWindow):
        raise WindowProblem(
            "rows of a query have no row ids", span, hint="write RANGE duration, or ROWS number"
        )
    if isinstance(window, CountWindow) and window.slide is not None:
        raise NotYet("SLIDE by rows over a query", span, hint=f"write ROWS {window.rows}")


def check_of_view(window: Window, view: str, span: Span, keyed: bool = False) -> None:
    """Refuse a window that is brought over a `view`, if there is one, and chooses rows otherwise
    than by ts: the condition of the query, which comes after it, was pushed down. Over a view that
    stands for a `keyed` stream SLIDE would set back as of when rows are current."""
    if view and (not isinstance(window, TimeWindow) or (keyed and window.slide)):
        raise NotYet(
            f"this window over the view {view}, where it is brought",
            span,
            hint="write it in the query; RANGE duration and BEGIN … END … can be brought",
        )


def check_clocks(
    schemas: Sequence[StreamSchema], moving: Sequence[bool], places: Sequence[Span]
) -> None:
    """Refuse references to streams with event time beside streams with arrival time, unless no
    reference of one of the two kinds is `moving` with NOW."""
    kinds: dict[bool, list[int]] = {True: [], False: []}
    for number, schema in enumerate(schemas):
        kinds[not schema.now_is_clock].append(number)
    if not all(kinds.values()):
        return
    firsts = [next((n for n in kind if moving[n]), None) for kind in kinds.values()]
    event, arrival = firsts
    if event is None or arrival is None:
        return
    raise WindowProblem(
        f"{schemas[event].name} has event time and {schemas[arrival].name} arrival time: their"
        " clocks can't be compared, and both windows move with NOW",
        places[max(event, arrival)],
        hint="give the streams of one kind windows that don't: WINDOW(UNBOUNDED), or fixed ones",
        reason="MIXED_CLOCKS",
    )


def check_validities(query: Query, span: Span) -> None:
    """Refuse windows over several references to streams with a validity, unless they hold what is
    valid at NOW, or are one window of references that stand side by side in FROM."""
    windows = [leg.valid.window for leg in query.legs if leg.valid is not None]
    if len(windows) < 2 or set(windows) == {PRESENT}:
        return
    items = query.source.items if isinstance(query.source, From) else ()
    if len(items) == 1 and isinstance(items[0], SetOperation):
        for part in items[0].queries:
            check_validities(part, span)
        return
    beside = [item for item in items if isinstance(item, Leg) and item.valid is not None]
    if len(beside) < len(windows) or len(set(windows)) > 1:
        raise NotYet(
            "different windows over references to rows with a validity, or one with LEFT JOIN or"
            " queries inside the query",
            span,
            hint="join such streams side by side in FROM, with one window at the end; or leave it"
            " out, which takes what is valid at NOW",
        )


def check_trigger(schema: StreamSchema, trigger: StreamSchema, span: Span) -> None:
    """Refuse a stream with arrival time whose rows would refresh one with event time."""
    if trigger.now_is_clock and not schema.now_is_clock:
        raise RefreshProblem(
            f"{schema.name} has event time and {trigger.name} arrival time: their clocks can't be"
            " compared",
            span,
            hint="REFRESH ON a stream with ORDERED BY, or REFRESH EVERY duration",
        )


def _retention_hint(limit: str) -> str:
    return (
        f"RANGE {limit} is the longest; BEGIN NOW - x needs x shorter than {limit}, because"
        " its first instant belongs to the window"
    )


def _calendar_hint(reach: int) -> str:
    return (
        f"with the present unit it reaches back by up to {write_duration(reach + 1)}, and REFRESH"
        " EVERY adds its period: give the stream a longer RETAIN"
    )


def _step_hint(limit: str) -> str:
    return (
        f"RANGE, SLIDE and REFRESH EVERY together must not exceed {limit}: SLIDE and REFRESH set"
        " the window back"
    )


def check_versions(
    window: Window, schema: StreamSchema, span: Span | None, period: int | None = None
) -> None:
    """Refuse to look up rows of a keyed stream for rows in a window that may be older than the
    versions it keeps; a refresh every `period` sets the window back."""
    if schema.retain is None:
        return
    begin = window.begin if isinstance(window, TimeWindow) else None
    relative = begin is not None and begin.relative
    behind = sum(step - 1 for step in (_slide(window), period) if step)
    if begin is None or not relative or begin.farthest - behind <= -schema.retain:
        raise WindowProblem(
            f"{schema.name} keeps an ended row for {write_duration(schema.retain)}, and rows are"
            " looked up for older ones",
            span,
            hint="give the rows that they are looked up for a shorter window, or leave RETAIN out",
            reason="WINDOW_PAST_RETENTION",
        )
