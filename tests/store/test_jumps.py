"""Clock jumps: what confirms one, what does not, and that all readers agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from datastem.instants import DAY, HOUR, MINUTE
from psoup.store import Confirm, Entry, Epoch, Event, Jump, Position, State, Store, Tick
from psoup.store.state.jumps import (
    BY_OPERATOR,
    BY_TIME,
    MAX_CONFIRMED_JUMPS,
    MAX_UNCONFIRMED_JUMPS,
    JumpRecord,
    Jumps,
)

START = 1_700_000_000_000_000
AGREE, SETTLE = 10 * MINUTE, 7 * DAY


def jump(before: int, to: int, server: str = "a", settle: int = SETTLE) -> Jump:
    return Jump(before, to, server, AGREE, settle)


def day_ahead(server: str = "a") -> Jumps:
    return Jumps().add(jump(START, START + DAY, server)).hear(START + DAY, server, START + DAY)


def test_a_jump_counts_until_it_is_confirmed() -> None:
    jumps = day_ahead()
    assert jumps.unconfirmed == DAY
    assert jumps.confirm(1).unconfirmed == 0
    assert jumps.confirm(1).records[0].confirmed == BY_OPERATOR
    assert jumps.confirm(2) == jumps
    twice = jumps.add(jump(START + DAY, START + 3 * DAY))
    assert twice.unconfirmed == 3 * DAY and twice.confirm(1).unconfirmed == 2 * DAY


def test_its_own_server_and_events_of_format_1_confirm_nothing() -> None:
    jumps = day_ahead()
    later = START + DAY + HOUR
    assert jumps.hear(later, "a", later) == jumps
    assert jumps.hear(later, "", None) == jumps


def test_another_server_confirms_it_where_its_own_clock_is_that_late() -> None:
    jumps = day_ahead()
    stamp = START + DAY
    assert jumps.hear(stamp, "b", START).unconfirmed == DAY
    assert jumps.hear(stamp, "b", stamp - AGREE - 1).unconfirmed == DAY
    agreed = jumps.hear(stamp, "b", stamp - AGREE)
    assert agreed.unconfirmed == 0 and agreed.records[0].confirmed == "b"


def test_two_wrong_clocks_in_a_row_do_not_confirm_each_other() -> None:
    end = START + 4 * DAY
    jumps = day_ahead("a").add(jump(START + DAY, end, "b")).hear(end, "b", end)
    assert jumps.unconfirmed == 4 * DAY
    assert jumps.hear(end + HOUR, "b", end + HOUR).unconfirmed == 4 * DAY
    assert jumps.hear(end + HOUR, "a", START + DAY).unconfirmed == 4 * DAY
    # The server that jumped earlier agrees with the later jump and confirms it. Then the other
    # server may confirm the earlier jump.
    both = jumps.hear(end + HOUR, "a", end + HOUR)
    assert both.unconfirmed == DAY
    assert both.hear(end + HOUR, "b", end + HOUR).unconfirmed == 0


def test_a_week_of_stamps_confirms_it_without_the_jumps_among_them() -> None:
    jumps = day_ahead()
    stamp = START + DAY + SETTLE
    assert jumps.hear(stamp - 1, "a", stamp - 1).unconfirmed == DAY
    assert jumps.hear(stamp, "a", stamp).records[0].confirmed == BY_TIME
    far = START + DAY + HOUR
    again = jumps.add(jump(far, stamp)).hear(stamp, "a", stamp)
    assert again.unconfirmed == DAY + stamp - far
    assert again.hear(stamp + SETTLE - HOUR, "a", stamp + SETTLE).unconfirmed == stamp - far


def test_a_server_that_is_trusted_settles_at_once() -> None:
    jumps = Jumps().add(jump(START, START + DAY, settle=0)).hear(START + DAY, "a", START + DAY)
    assert jumps.unconfirmed == 0


def test_their_number_is_bounded_and_their_length_is_not_forgotten() -> None:
    jumps, stamp = Jumps(), START
    for _ in range(MAX_UNCONFIRMED_JUMPS + 20):
        jumps = jumps.add(jump(stamp, stamp + 2 * HOUR))
        stamp += 3 * HOUR
    assert len(jumps.records) == MAX_UNCONFIRMED_JUMPS
    assert jumps.unconfirmed == jumps.total == (MAX_UNCONFIRMED_JUMPS + 20) * 2 * HOUR
    assert jumps.records[-1].number == jumps.count == MAX_UNCONFIRMED_JUMPS + 20
    for record in jumps.records:
        jumps = jumps.confirm(record.number)
    assert jumps.unconfirmed == 0 and len(jumps.records) == MAX_CONFIRMED_JUMPS


def _model(commits: list[tuple[str, int | None, int, int]]) -> int:
    """Return the length of the unconfirmed jumps of commits (server, its clock, last stamp, stamp),
    by the rules as documented."""
    open_: list[dict[str, int | str]] = []
    for server, clock, last, stamp in commits:
        leaps = stamp - last > HOUR
        if leaps:
            for leap in open_:
                leap["skipped"] = int(leap["skipped"]) + stamp - last
            open_.append({"by": server, "size": stamp - last, "to": stamp, "skipped": 0})
        agrees = clock is not None and stamp - clock <= AGREE
        unconfirmed = []
        for place, leap in enumerate(open_):
            since = {later["by"] for later in open_[place:]}
            spoken = agrees and bool(server) and server not in since
            if not spoken and stamp - int(leap["to"]) - int(leap["skipped"]) < SETTLE:
                unconfirmed.append(leap)
        open_ = unconfirmed
    return sum(int(leap["size"]) for leap in open_)


COMMITS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", ""]),
        st.sampled_from([0, MINUTE, HOUR // 2, 2 * HOUR, DAY, 5 * DAY]),
        st.sampled_from([0, AGREE, AGREE + 1, DAY]),
    ),
    max_size=30,
)


def _entries(commits: list[tuple[str, int, int]]) -> tuple[list[Entry], list[tuple[str, int | None, int, int]]]:  # fmt: skip  # noqa: E501
    """Return the entries of commits, and the commits as `_model` takes them.

    A commit is given as (server, time since the last one, how far the server's clock is behind).
    """
    stamp, entries, plain = START, [], []
    for number, (server, more, behind) in enumerate(commits):
        last, stamp = stamp, stamp + more
        clock = stamp - behind if server else None
        events: list[Event] = [Tick()]
        if stamp - last > HOUR:
            events.insert(0, jump(last, stamp, server))
        for ordinal, event in enumerate(events):
            position = Position(number + 1, ordinal)
            entries.append(Entry(position, stamp, "", "", event, server, clock))
        plain.append((server, clock, last, stamp))
    return entries, plain


@given(COMMITS)
def test_the_fold_is_what_the_rules_say(commits: list[tuple[str, int, int]]) -> None:
    entries, plain = _entries(commits)
    state = State()
    for entry in entries:
        state.apply(entry)
    assert state.jumps.unconfirmed == _model(plain)
    assert state.vouched == state.clock - state.jumps.unconfirmed


def test_the_log_and_the_epoch_give_it_back(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", create=True, sync=False)
    commits = [("a", 0, 0), ("a", DAY, 0), ("b", 0, DAY), ("b", 2 * DAY, 0), ("c", MINUTE, 0)]
    entries, _ = _entries(commits)
    entries.append(Entry(Position(6, 0), START + 4 * DAY, "", "", Confirm(7), "c", START))
    state, read = State(), State()
    for version in range(1, 7):
        commit = [entry for entry in entries if entry.position.version == version]
        commit = list(store.log.append(version, commit)[0])
        assert store.log.read(version) == store.log.read(version, payloads=False) == commit
        for entry in commit:
            state.apply(entry)
        epoch = Epoch(
            version, "step", version, state.position, state.clock, 0, 1, {}, {},
            state.leases.outages, state.jumps,
        )  # fmt: skip
        store.epochs.append(version, epoch)
        assert store.epochs.latest()[1] == epoch
        read = store.state(epoch)
        assert (read.jumps, read.vouched) == (state.jumps, state.vouched)
    assert [record.confirmed for record in state.jumps.records] == ["c", "c"]
    assert isinstance(state.jumps.records[0], JumpRecord)


def test_a_draft_keeps_its_jumps_to_itself() -> None:
    state = State()
    draft = state.draft()
    entry = Entry(Position(1, 0), START + DAY, "", "", jump(START, START + DAY), "a", START + DAY)
    draft.apply(entry)
    draft.apply(replace(entry, position=Position(1, 1), event=Tick()))
    assert (state.jumps.unconfirmed, draft.jumps.unconfirmed) == (0, DAY)
