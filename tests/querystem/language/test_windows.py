"""Windows hold exactly the instants the text names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.instants import DAY, HOUR, MAX_INSTANT, MIN_INSTANT, MINUTE, SECOND, to_micros
from datastem.schema import StreamSchema
from querystem.language import QueryError, WindowProblem, bind_window, window_text
from querystem.language.durations import write_duration
from querystem.language.moments import read_timestamp
from results.window import UNBOUNDED, Bound, Window
from tests.querystem.language.support import TRADES

FOREVER = StreamSchema("t", ())
NINE = to_micros(read_timestamp("2026-11-16 09:00"))


@pytest.mark.parametrize(
    ("text", "window"),
    [
        (
            "BEGIN '2026-11-16 09:00' END '2026-11-16 10:00'",
            Window(Bound(NINE, False), Bound(NINE + HOUR + 1, False)),
        ),
        ("BEGIN '2026-11-16 09:00' END NOW", Window(Bound(NINE, False), None)),
        (
            "BEGIN NOW - 1 HOUR END NOW - 10 MINUTES",
            Window(Bound(-HOUR, True), Bound(1 - 10 * MINUTE, True)),
        ),
        ("RANGE 10 MINUTES", Window(Bound(1 - 10 * MINUTE, True), None)),
        ("BEGIN NOW END NOW", Window(Bound(0, True), None)),
        ("BEGIN NOW - 0 END NOW - 0 SECONDS", Window(Bound(0, True), None)),
        ("UNBOUNDED", UNBOUNDED),
        ("unbounded;", UNBOUNDED),
    ],
)
def test_both_ends_belong_to_the_window(text: str, window: Window) -> None:
    assert bind_window(text, FOREVER) == window


def test_a_row_leaves_at_the_first_instant_it_is_out() -> None:
    ts = NINE

    def holds(text: str, now: int) -> bool:
        begin, end = bind_window(text, FOREVER).at(now)
        return (begin is None or begin <= ts) and ts < end

    assert holds("RANGE 10 MINUTES", ts) and holds("RANGE 10 MINUTES", ts + 10 * MINUTE - 1)
    assert not holds("RANGE 10 MINUTES", ts + 10 * MINUTE)
    assert holds("BEGIN NOW - 10 MINUTES END NOW", ts + 10 * MINUTE)
    assert not holds("BEGIN NOW - 10 MINUTES END NOW", ts + 10 * MINUTE + 1)
    assert not holds("UNBOUNDED", ts - 1)


bounds = st.one_of(
    st.builds(Bound, st.integers(-(10**15), 0), st.just(True)),
    st.builds(Bound, st.integers(MIN_INSTANT, MAX_INSTANT), st.just(False)),
)


@given(bounds, bounds)
def test_a_window_written_as_text_binds_to_itself(begin: Bound, end: Bound) -> None:
    if begin.relative == end.relative and begin.offset > end.offset:
        begin, end = end, begin
    last = None if end == Bound(0, True) else Bound(end.offset + 1, end.relative)
    window = Window(begin, last)
    assert bind_window(window_text(window), FOREVER) == window


@given(st.integers(1, 10**16))
def test_a_range_written_as_text_binds_to_itself(micros: int) -> None:
    window = bind_window(f"RANGE {write_duration(micros)}", FOREVER)
    assert window == Window(Bound(1 - micros, True), None)
    assert bind_window(window_text(window), FOREVER) == window
    assert bind_window(f"RANGE {micros // SECOND}.{micros % SECOND:06d}", FOREVER) == window


@given(st.integers(-3, 3), st.sampled_from(["RANGE {}", "BEGIN NOW - {} END NOW"]))
def test_a_window_is_refused_exactly_where_a_row_it_holds_is_no_longer_kept(
    over: int, form: str
) -> None:
    text = form.format(write_duration(30 * DAY + over))
    begin = bind_window(text, FOREVER).at(0)[0]
    assert begin is not None and TRADES.retain is not None
    if begin > -TRADES.retain:
        assert bind_window(text, TRADES).begin == Bound(begin, True)
    else:
        with pytest.raises(WindowProblem, match="30 DAYS") as caught:
            bind_window(text, TRADES)
        assert caught.value.reason == "WINDOW_PAST_RETENTION"


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
    assert bind_window(f"RANGE {written}", FOREVER).begin == Bound(1 - micros, True)


@pytest.mark.parametrize(
    "text", ["", "   ", "RANGE", "BEGIN", "END NOW", "RANGE 10 MINUTES RANGE 5"]
)
def test_half_a_window_is_refused(text: str) -> None:
    with pytest.raises(QueryError):
        bind_window(text, FOREVER)
