"""When a pull is due: sleep, clocks that are set, jitter and back-off, all on made-up clocks."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.pulls._schedule import Schedule, Timetable, parse_duration, show_duration

QUARTER = Schedule(timedelta(minutes=15))
NINE = 1_700_000_100.0  # 22:15 UTC on a day of 2023: a turn of every aligned quarter

spans = st.integers(1, 10**6).map(lambda seconds: timedelta(seconds=seconds))
draws = st.floats(0, 1, exclude_max=True)
walls = st.floats(0, 4e9)


@st.composite
def schedules(draw):
    every = draw(spans)
    jitter = timedelta(seconds=draw(st.integers(0, int(every.total_seconds()) - 1)))
    backoff = draw(spans)
    cap = draw(st.none() | st.just(backoff + draw(spans)))
    return Schedule(every, jitter, draw(st.booleans()), backoff, cap)


class Times:
    """The two clocks. `run` is time awake, `sleep` time asleep, `set_wall` a change by hand."""

    def __init__(self, wall: float = NINE) -> None:
        self.wall, self.monotonic = wall, 5.0

    def run(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def sleep(self, seconds: float) -> None:
        self.wall += seconds

    set_wall = sleep

    def left(self, table: Timetable) -> float:
        return table.remaining(self.wall, self.monotonic)

    def done(self, table: Timetable, *, failed: bool = False, draw: float = 0.0) -> float:
        return table.done(self.wall, self.monotonic, failed=failed, draw=draw)


def begin(schedule: Schedule, wall: float = NINE) -> tuple[Times, Timetable]:
    times = Times(wall)
    return times, Timetable(schedule, times.wall, times.monotonic)


def test_the_first_pull_is_at_once_and_the_others_keep_its_pace() -> None:
    times, table = begin(QUARTER, NINE + 7)
    assert times.left(table) == 0
    times.run(40)
    assert times.done(table) == 900 - 40
    times.run(860)
    assert times.left(table) == 0
    times.run(1)
    assert times.done(table) == 899


def test_aligned_turns_are_those_of_the_clock_on_the_wall() -> None:
    times, table = begin(Schedule(timedelta(minutes=15), aligned=True), NINE + 7)
    assert times.left(table) == 0
    assert times.done(table) == 893


def test_five_turns_slept_through_are_one_pull_at_once() -> None:
    times, table = begin(QUARTER)
    times.done(table)
    times.run(100)
    times.sleep(5 * 900)
    assert times.left(table) == 0
    times.run(3)
    assert times.done(table) == 900 - 103
    assert times.left(table) > 0


def test_a_pull_longer_than_its_interval_leaves_turns_out() -> None:
    times, table = begin(QUARTER)
    times.run(2 * 900 + 1)
    assert times.done(table) == 899


def test_a_wall_clock_set_back_holds_nothing_up() -> None:
    times, table = begin(QUARTER)
    wait = times.done(table)
    times.set_wall(-86_400)
    times.run(wait)
    assert times.left(table) == 0
    assert 0 < times.done(table) <= 900


def test_a_wall_clock_set_forward_costs_one_early_pull() -> None:
    times, table = begin(QUARTER)
    times.done(table)
    times.set_wall(86_400)
    assert times.left(table) == 0
    assert 0 < times.done(table) <= 900


def test_back_off_doubles_up_to_its_cap_and_ends_with_a_success() -> None:
    schedule = Schedule(timedelta(minutes=15), backoff_cap=timedelta(seconds=30))
    times, table = begin(schedule)
    waits = [times.done(table, failed=True, draw=0.999999999) for _ in range(5)]
    assert waits == pytest.approx([5, 10, 20, 30, 30])
    assert times.done(table) == 900
    assert times.done(table, failed=True, draw=0.0) == 2.5


@given(schedules(), walls, walls)
def test_the_next_turn_is_ahead_by_at_most_one_interval(schedule, wall, origin) -> None:
    turn = schedule.turn_after(wall, origin)
    every = schedule.every.total_seconds()
    assert wall < turn <= wall + every * (1 + 1e-9) + 1e-5


@given(schedules(), walls, st.floats(0, 1e6), draws)
def test_the_wait_is_an_interval_and_jitter_at_most(schedule, wall, took, draw) -> None:
    times, table = begin(schedule, wall)
    times.run(took)
    wait = times.done(table, draw=draw)
    longest = schedule.every + schedule.jitter
    assert 0 < wait <= longest.total_seconds() + 1e-5
    assert times.left(table) == pytest.approx(wait)


@given(schedules(), st.lists(st.tuples(st.sampled_from(["run", "sleep", "back"]), draws)), draws)
def test_no_clock_can_put_a_pull_off_for_longer_than_awake_time(schedule, moves, draw) -> None:
    """Whatever sleep and setting do, that much time awake is enough; and sleep counts too."""
    times, table = begin(schedule)
    wait = times.done(table, draw=draw)
    for move, part in moves:
        remaining = times.left(table)
        {"run": times.run, "sleep": times.sleep, "back": lambda s: times.set_wall(-s)}[move](
            part * wait
        )
        assert times.left(table) <= remaining or move == "back"
    times.run(wait)
    assert times.left(table) == 0


@given(schedules(), st.integers(1, 10_000), draws)
def test_a_pause_is_never_past_the_cap_and_never_nothing(schedule, failures, draw) -> None:
    cap = (schedule.backoff_cap or schedule.every).total_seconds()
    shortest = min(schedule.backoff.total_seconds(), cap) / 2
    assert shortest <= schedule.pause(failures, draw) <= cap
    assert schedule.pause(failures, draw) <= schedule.pause(failures + 1, draw)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"every": timedelta()}, "every"),
        ({"jitter": timedelta(minutes=15)}, "jitter"),
        ({"backoff": timedelta()}, "backoff"),
        ({"backoff_cap": timedelta(seconds=1)}, "backoff_cap"),
    ],
)
def test_a_schedule_that_is_none(wrong, field) -> None:
    with pytest.raises(ValueError, match=f"^{field}:"):
        Schedule(**{"every": timedelta(minutes=15), **wrong})


def test_durations() -> None:
    assert parse_duration(" 15 M") == timedelta(minutes=15)
    for text in ("", "15", "m", "1.5h", "-3s", "999999999w", "٣s"):
        with pytest.raises(ValueError, match="duration"):
            parse_duration(text)
    short = {0: "0s", 0.25: "0.25s", 42: "42s", 900: "15m", 3_900: "1h 5m", 90_061: "1d 1h"}
    for seconds, text in short.items():
        assert show_duration(timedelta(seconds=seconds)) == text
