"""Windows hold exactly the instants the text names."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.calendar import Unit
from datastem.instants import (
    DAY,
    HOUR,
    MAX_INSTANT,
    MIN_INSTANT,
    MINUTE,
    SECOND,
    format_instant,
    to_micros,
)
from datastem.schema import Column, StreamSchema
from datastem.types import DOUBLE, TEXT
from datastem.zones import machine_rules
from querystem.language import (
    QueryError,
    WindowProblem,
    bind_query,
    bind_window,
    bring_window,
    window_text,
)
from querystem.language.tokens.durations import write_duration
from querystem.language.tokens.literals import read_timestamp
from querystem.reach import time_begin
from results.window import (
    UNBOUNDED,
    Bound,
    CalendarBound,
    CountWindow,
    RowWindow,
    TimeWindow,
    Window,
    window_from_json,
    window_to_json,
    with_rules,
)
from tests.oracle.calendar import naive_begin
from tests.querystem.language.support import STREAMS, TRADES, schema_of

FOREVER = StreamSchema("t", (Column("t_1", TEXT), Column("order", TEXT), Column("x", DOUBLE)))
ZONES = {name: machine_rules(name) for name in ("Europe/Madrid", "Australia/Lord_Howe")}
NINE = to_micros(read_timestamp("2026-11-16 09:00"))


@pytest.mark.parametrize(
    ("text", "window"),
    [
        (
            "BEGIN '2026-11-16 09:00' END '2026-11-16 10:00'",
            TimeWindow(Bound(NINE, False), Bound(NINE + HOUR + 1, False)),
        ),
        ("BEGIN '2026-11-16 09:00' END NOW", TimeWindow(Bound(NINE, False), None)),
        (
            "BEGIN NOW - 1 HOUR END NOW - 10 MINUTES",
            TimeWindow(Bound(-HOUR, True), Bound(1 - 10 * MINUTE, True)),
        ),
        ("RANGE 10 MINUTES", TimeWindow(Bound(1 - 10 * MINUTE, True), None)),
        ("BEGIN NOW END NOW", TimeWindow(Bound(0, True), None)),
        ("BEGIN NOW - 0 END NOW - 0 SECONDS", TimeWindow(Bound(0, True), None)),
        (
            "RANGE 10 MINUTES SLIDE 1 MINUTE",
            TimeWindow(Bound(1 - 10 * MINUTE, True), None, MINUTE),
        ),
        ("RANGE 10 SLIDE 60", TimeWindow(Bound(1 - 10 * SECOND, True), None, MINUTE)),
        ("BEGIN ROW 1000 END ROW LAST", RowWindow(Bound(1000, False), Bound(1, True))),
        ("BEGIN ROW LAST - 99 END ROW LAST", RowWindow(Bound(-99, True), Bound(1, True))),
        ("BEGIN ROW LAST - 9 END ROW LAST - 5", RowWindow(Bound(-9, True), Bound(-4, True))),
        ("begin row 0 end row 0", RowWindow(Bound(0, False), Bound(1, False))),
        ("BEGIN ROW LAST END ROW 7", RowWindow(Bound(0, True), Bound(8, False))),
        ("ROWS 100", CountWindow(100)),
        ("ROWS 100 SLIDE 10", CountWindow(100, 10)),
        ("ROWS 5 PARTITION BY t_1", CountWindow(5, None, ("t_1",))),
        ('rows 5 partition\n by "t_1", "order"', CountWindow(5, None, ("t_1", "order"))),
        ("UNBOUNDED", UNBOUNDED),
        ("unbounded;", UNBOUNDED),
    ],
)
def test_both_ends_belong_to_the_window(text: str, window: Window) -> None:
    assert bind_window(text, FOREVER) == window


def time_window(text: str, schema: StreamSchema = FOREVER) -> TimeWindow:
    window = bind_window(text, schema)
    assert isinstance(window, TimeWindow)
    return window


def test_a_row_leaves_at_the_first_instant_it_is_out() -> None:
    ts = NINE

    def holds(text: str, now: int) -> bool:
        begin, end = time_window(text).at(now)
        return (begin is None or begin <= ts) and ts < end

    assert holds("RANGE 10 MINUTES", ts) and holds("RANGE 10 MINUTES", ts + 10 * MINUTE - 1)
    assert not holds("RANGE 10 MINUTES", ts + 10 * MINUTE)
    assert holds("BEGIN NOW - 10 MINUTES END NOW", ts + 10 * MINUTE)
    assert not holds("BEGIN NOW - 10 MINUTES END NOW", ts + 10 * MINUTE + 1)
    assert not holds("UNBOUNDED", ts - 1)


def test_a_slide_stands_until_the_next() -> None:
    window = time_window("RANGE 10 MINUTES SLIDE 1 MINUTE")
    assert window.at(NINE) == window.at(NINE + MINUTE - 1) == (NINE + 1 - 10 * MINUTE, NINE + 1)
    assert window.at(NINE + MINUTE) == (NINE + 1 - 9 * MINUTE, NINE + MINUTE + 1)


def test_both_rows_belong_to_the_window() -> None:
    window = bind_window("BEGIN ROW LAST - 99 END ROW LAST", FOREVER)
    assert isinstance(window, RowWindow) and window.at(1000) == (901, 1001)
    window = bind_window("BEGIN ROW 3 END ROW 5", FOREVER)
    assert isinstance(window, RowWindow) and window.at(1000) == (3, 6)


rows = st.one_of(
    st.builds(Bound, st.integers(-(2**62), 0), st.just(True)),
    st.builds(Bound, st.integers(0, 2**62), st.just(False)),
)
counts = st.integers(1, 2**31)
names = st.lists(st.sampled_from(["t_1", "order", "x"]), unique=True)


@given(
    st.one_of(
        st.builds(
            TimeWindow,
            st.builds(Bound, st.integers(-(10**15), 0), st.just(True)),
            st.none(),
            st.integers(1, 10**15),
        ),
        st.builds(
            lambda begin, end: RowWindow(begin, Bound(end.offset + 1, end.relative)), rows, rows
        ).filter(lambda w: w.begin.relative != w.end.relative or w.begin.offset < w.end.offset),
        st.builds(CountWindow, counts, st.none() | counts),
        st.builds(CountWindow, counts, st.none(), names.map(tuple)),
    )
)
def test_any_other_window_written_as_text_binds_to_itself(window: Window) -> None:
    assert bind_window(window_text(window), FOREVER) == window
    assert window_from_json(json.loads(json.dumps(window_to_json(window)))) == window


bounds = st.one_of(
    st.builds(Bound, st.integers(-(10**15), 0), st.just(True)),
    st.builds(Bound, st.integers(MIN_INSTANT, MAX_INSTANT), st.just(False)),
)


@given(bounds, bounds)
def test_a_window_written_as_text_binds_to_itself(begin: Bound, end: Bound) -> None:
    if begin.relative == end.relative and begin.offset > end.offset:
        begin, end = end, begin
    last = None if end == Bound(0, True) else Bound(end.offset + 1, end.relative)
    window = TimeWindow(begin, last)
    assert bind_window(window_text(window), FOREVER) == window


@given(st.integers(1, 10**16))
def test_a_range_written_as_text_binds_to_itself(micros: int) -> None:
    window = bind_window(f"RANGE {write_duration(micros)}", FOREVER)
    assert window == TimeWindow(Bound(1 - micros, True), None)
    assert bind_window(window_text(window), FOREVER) == window
    assert bind_window(f"RANGE {micros // SECOND}.{micros % SECOND:06d}", FOREVER) == window


@given(st.integers(-3, 3), st.sampled_from(["RANGE {}", "BEGIN NOW - {} END NOW"]))
def test_a_window_is_refused_exactly_where_a_row_it_holds_is_no_longer_kept(
    over: int, form: str
) -> None:
    text = form.format(write_duration(30 * DAY + over))
    begin = time_window(text).at(0)[0]
    assert begin is not None and TRADES.retain is not None
    if begin > -TRADES.retain:
        assert time_window(text, TRADES).begin == Bound(begin, True)
    else:
        with pytest.raises(WindowProblem, match="30 DAYS") as caught:
            bind_window(text, TRADES)
        assert caught.value.reason == "WINDOW_PAST_RETENTION"


@given(st.integers(1, 10), st.integers(-3, 3))
def test_a_slide_is_refused_exactly_where_it_may_be_set_back_past_the_retention(
    slide: int, over: int
) -> None:
    text = f"RANGE {write_duration(30 * DAY + over)} SLIDE {write_duration(slide)}"
    window = time_window(text)
    reaches = [window.at(now)[0] - now for now in range(slide)]  # type: ignore[operator]
    assert TRADES.retain is not None
    if min(reaches) > -TRADES.retain:
        assert bind_window(text, TRADES) == window
    else:
        with pytest.raises(WindowProblem, match="past the retention"):
            bind_window(text, TRADES)


def test_windows_of_rows_hold_what_is_left() -> None:
    for text in ("BEGIN ROW 0 END ROW LAST", "ROWS 2147483648", "BEGIN ROW LAST - 9 END ROW LAST"):
        bind_window(text, TRADES)


@pytest.mark.parametrize("over", [-1, 0, 1, DAY])
@pytest.mark.parametrize(
    "text", ["ROWS 5", "ROWS 5 SLIDE 2", "BEGIN ROW LAST - 9 END ROW LAST", "UNBOUNDED"]
)
def test_a_period_is_refused_exactly_where_no_row_is_left_before_it_ends(
    text: str, over: int
) -> None:
    """At the end of a period a row with the ts of its beginning, the latest that the window can
    hold, must still be kept."""
    period = 30 * DAY + over
    query = f"SELECT price FROM trades {text} REFRESH EVERY {write_duration(period)}"
    assert TRADES.retain is not None
    if period - 1 < TRADES.retain:
        bind_window(text, TRADES, period)
        bind_query(query, lambda _: TRADES)
    else:
        for bind in (
            lambda: bind_window(text, TRADES, period),
            lambda: bind_query(query, lambda _: TRADES),
        ):
            with pytest.raises(WindowProblem, match="keeps a row for 30 DAYS") as caught:
                bind()
            assert caught.value.reason == "WINDOW_PAST_RETENTION"
            assert "REFRESH EVERY" in (caught.value.hint or "")
    bind_window(text, FOREVER, period)


def test_a_window_that_is_brought_counts_the_period_for_rows_that_are_looked_up() -> None:
    """`listings` keeps an ended row for a week, and a refresh sets the window back by two days."""
    sql = "SELECT t.price FROM trades AS t, listings AS OF t.ts AS l WHERE l.symbol = t.symbol"
    query = bind_query(f"{sql} AND l.venue = t.venue RANGE 1 DAY REFRESH EVERY 2 DAYS", STREAMS.get)
    schemas = [STREAMS[leg.stream] for leg in query.legs]
    assert bring_window("RANGE 5 DAYS", query, schemas, query.period)
    assert bring_window("RANGE 6 DAYS", query, schemas, None), "unrefreshed"
    with pytest.raises(WindowProblem, match="looked up for older ones"):
        bring_window("RANGE 6 DAYS", query, schemas, query.period)


def test_a_landmark_may_age_past_the_retention() -> None:
    bind_window("BEGIN '1970-01-01' END NOW", TRADES)
    bind_window("BEGIN '1970-01-01' END '1970-01-02'", TRADES)
    with pytest.raises(WindowProblem):
        bind_window("BEGIN '1970-01-01' END NOW - 31 DAYS", TRADES)


@pytest.mark.parametrize(
    ("written", "micros"),
    [
        ("1 MICROSECOND", 1),
        ("2 MILLISECONDS", 2000),
        ("3 second", 3 * SECOND),
        ("1.5 Minutes", 90 * SECOND),
        ("2 HOURS", 2 * HOUR),
        ("1 DAY", DAY),
        ("2 WEEKS", 14 * DAY),
        ("INTERVAL '1' HOUR", HOUR),
        ("INTERVAL '1.5 hours'", 90 * MINUTE),
        ("INTERVAL 2 MINUTES", 2 * MINUTE),
        ("INTERVAL '30'", 30 * SECOND),
        ("0.000001", 1),
        ("1e3", 1000 * SECOND),
    ],
)
def test_durations(written: str, micros: int) -> None:
    assert time_window(f"RANGE {written}").begin == Bound(1 - micros, True)


@pytest.mark.parametrize(
    "text", ["", "   ", "RANGE", "BEGIN", "END NOW", "RANGE 10 MINUTES RANGE 5"]
)
def test_half_a_window_is_refused(text: str) -> None:
    with pytest.raises(QueryError):
        bind_window(text, FOREVER)


def test_the_retention_does_not_limit_windows_over_a_keyed_stream() -> None:
    """What is current is retained, however old it is."""
    keyed = schema_of("CREATE STREAM t (a BIGINT) KEY (a) RETAIN 1 HOUR")
    assert bind_window("BEGIN NOW - 1 DAY END NOW", keyed) == bind_window(
        "BEGIN NOW - 1 DAY END NOW", schema_of("CREATE STREAM t (a BIGINT)")
    )
    assert bind_window("RANGE 2 HOURS SLIDE 2 HOURS", keyed)


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("back", [0, 1, 12])
@pytest.mark.parametrize("zone", ["", "Europe/Madrid"])
def test_calendar_windows_are_read_as_they_are_written(unit: Unit, back: int, zone: str) -> None:
    end = CalendarBound(unit, 0, zone) if back else None
    window = TimeWindow(CalendarBound(unit, back, zone), end)
    assert bind_window(window_text(window), FOREVER) == window
    assert window_from_json(json.loads(json.dumps(window_to_json(window)))) == window


@given(
    st.sampled_from(Unit),
    st.integers(0, 3),
    st.sampled_from(("", "Europe/Madrid", "Australia/Lord_Howe")),
    st.integers(to_micros(read_timestamp("2020-01-01")), to_micros(read_timestamp("2030-01-01"))),
)
def test_a_calendar_window_is_the_explicit_one(unit: Unit, back: int, zone: str, now: int) -> None:
    """At each instant: from the begin of the first unit to the last microsecond before the present
    one, or to NOW."""
    end = CalendarBound(unit, 0, zone) if back else None
    window = with_rules(TimeWindow(CalendarBound(unit, back, zone), end), ZONES)
    assert isinstance(window, TimeWindow)
    begin = naive_begin(unit, zone or "UTC", now, back)
    last = naive_begin(unit, zone or "UTC", now) - 1 if back else now
    if begin > last:
        assert window.at(now) == (begin, begin)
        return
    text = f"BEGIN '{format_instant(begin)}' END '{format_instant(last)}'"
    explicit = bind_window(text, FOREVER)
    assert isinstance(explicit, TimeWindow) and window.at(now) == explicit.at(now)


def test_the_reach_of_calendar_windows() -> None:
    def reach(text: str) -> int:
        begin = time_begin(bind_window(text, FOREVER))
        assert begin is not None and begin.relative
        return -begin.offset + 1

    assert reach("DURING TODAY") == DAY
    assert reach("DURING YESTERDAY") == 2 * DAY
    assert reach("DURING LAST 3 MONTHS AT TIME ZONE 'Europe/Madrid'") == 4 * 31 * DAY + 3 * HOUR
    for days, fits in (((2 * DAY), True), (2 * DAY - 1, False)):
        schema = replace(FOREVER, retain=days)
        with nullcontext() if fits else pytest.raises(WindowProblem):
            bind_window("DURING YESTERDAY", schema)


def test_the_number_and_the_zone_may_be_parameters() -> None:
    text = "SELECT * FROM t DURING LAST :n DAYS AT TIME ZONE :zone"
    query = bind_query(text, {"t": FOREVER}.get, {"n": 3, "zone": "Asia/Kolkata"})
    assert window_text(query.leg.window) == "DURING LAST 3 DAYS AT TIME ZONE 'Asia/Kolkata'"


def test_a_window_without_the_rules_of_its_zone_has_no_place_in_time() -> None:
    window = bind_window("DURING TODAY AT TIME ZONE 'Europe/Madrid'", FOREVER)
    assert isinstance(window, TimeWindow) and window.zones == {"Europe/Madrid"}
    with pytest.raises(LookupError):
        window.at(0)
    with pytest.raises(KeyError):
        with_rules(window, {})
