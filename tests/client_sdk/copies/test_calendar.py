"""Calendar windows on a device: a copy that is offline while days and clocks change is the store's
answer at each instant, and so are its own edits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk import Copies, InvalidRequest
from datastem.instants import HOUR, MINUTE, from_micros, to_micros
from datastem.zones import machine_rules
from psoup.v1 import psoup_pb2 as pb
from psoup.write.zones import DefineZone
from querystem.language.tokens.literals import read_timestamp
from tests.support.client_sdk.inside import InsideStore

MADRID = " AT TIME ZONE 'Europe/Madrid'"
# Madrid's clock goes from 02:00 to 03:00 at 01:00 UTC on 31 March 2024.
SATURDAY = to_micros(read_timestamp("2024-03-30 12:00"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InsideStore]:
    inside = InsideStore(tmp_path)
    inside.clock = SATURDAY
    yield inside
    inside.close()


def sell(store: InsideStore, hours: int) -> None:
    """Publish a sale every 40 minutes for some hours."""
    for _ in range(hours * 3 // 2):
        store.client.publish("sales", [{"at_minute": store.clock // MINUTE, "kind": "sold"}])
        store.clock += 40 * MINUTE


def zones_in_log(store: InsideStore) -> dict[str, int]:
    return {name: rules.version for name, rules in store.core.follower.state.zones.items()}


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT at_minute FROM sales DURING YESTERDAY{MADRID}",
        f"SELECT at_minute FROM sales DURING TODAY{MADRID}",
        f"SELECT at_minute FROM sales DURING LAST 5 HOURS{MADRID}",
        "SELECT at_minute FROM sales DURING THIS WEEK",
        f"SELECT a.at_minute AS at_minute FROM sales WINDOW(DURING TODAY{MADRID}) AS a, sales"
        f" WINDOW(DURING YESTERDAY{MADRID}) AS b WHERE a.at_minute = b.at_minute + 1440",
        "SELECT at_minute FROM (SELECT at_minute, ts FROM sales DURING THIS WEEK)"
        f" WINDOW(DURING TODAY{MADRID}) AS s",
    ],
)
def test_a_copy_offline_is_the_store_at_each_instant(
    store: InsideStore, tmp_path: Path, text: str
) -> None:
    store.client.define("CREATE STREAM sales (at_minute BIGINT, kind TEXT)")
    sell(store, 30)
    handle = store.client.register(text).handle
    with Copies(tmp_path / "phone.db", clock=store.now) as copies:
        copies.keep("sales", text)
        assert copies.sync(store.client).complete
        synced = store.clock
        for later in [*range(0, 60 * HOUR, 35 * MINUTE), 48 * HOUR - 1, 48 * HOUR]:
            store.clock = synced + later
            expected = store.client.invoke(handle).rows
            good = copies["sales"].state.good_until
            if good is None or store.now() < good:
                assert copies["sales"].rows() == expected, store.now()
        assert later > 40 * HOUR


def test_rows_that_enter_together_keep_their_order(store: InsideStore, tmp_path: Path) -> None:
    store.client.define("CREATE STREAM late (n BIGINT, at TIMESTAMP) ORDERED BY at AHEAD 7 DAYS")
    minutes = (40, 30, 0, 20, 130)
    rows = [{"n": n, "at": from_micros(SATURDAY + n * MINUTE)} for n in minutes]
    store.client.publish("late", rows)
    text = "SELECT n FROM late DURING LAST 2 HOURS"
    handle = store.client.register(text).handle
    with Copies(tmp_path / "phone.db", clock=store.now) as copies:
        copies.keep("late", text)
        copies.sync(store.client)
        expected = [{"n": 0}, {"n": 20}, {"n": 30}, {"n": 40}]
        assert copies["late"].rows() == store.client.invoke(handle).rows == expected


def test_a_group_is_good_until_its_unit_ends(store: InsideStore, tmp_path: Path) -> None:
    store.client.define("CREATE STREAM sales (at_minute BIGINT, kind TEXT)")
    sell(store, 20)
    with Copies(tmp_path / "phone.db", clock=store.now) as copies:
        copies.keep("n", f"SELECT count(*) AS n FROM sales DURING TODAY{MADRID}")
        copies.sync(store.client)
        # Sunday ends at 22:00 UTC: it began an hour later than it ends.
        assert copies["n"].state.good_until == from_micros(SATURDAY + 34 * HOUR)


def test_the_first_text_that_names_a_zone_brings_its_rules(store: InsideStore) -> None:
    client = store.client
    client.define("CREATE STREAM sales (at_minute BIGINT, kind TEXT)")
    handle = client.register("SELECT * FROM sales").handle
    assert zones_in_log(store) == {}
    client.invoke(handle, window=f"DURING TODAY{MADRID}")
    assert zones_in_log(store) == {"Europe/Madrid": 1}
    registration = client.register(
        "SELECT kind FROM sales DURING TODAY AT TIME ZONE 'Asia/Kolkata'"
    )
    assert zones_in_log(store) == {"Asia/Kolkata": 1, "Europe/Madrid": 1}
    assert not registration.notes
    with pytest.raises(InvalidRequest, match="no rules of the time zone Europe/Madird") as refusal:
        client.register("SELECT kind FROM sales DURING TODAY AT TIME ZONE 'Europe/Madird'")
    assert "Europe/Madrid" in refusal.value.detail.hint


def test_many_registrations_and_explain_bring_rules_too(store: InsideStore) -> None:
    client = store.client
    client.define("CREATE STREAM sales (at_minute BIGINT, kind TEXT)")
    text = "SELECT kind FROM sales WHERE kind = :kind DURING TODAY AT TIME ZONE 'Pacific/Apia'"
    registered = client.register_many(text, [{"kind": "a"}, {"kind": "b"}])
    assert zones_in_log(store) == {"Pacific/Apia": 1}
    explained = client.explain_text(
        "SELECT * FROM sales DURING LAST 2 WEEKS AT TIME ZONE 'Asia/Kolkata'"
    )
    assert "DURING LAST 2 WEEKS AT TIME ZONE 'Asia/Kolkata'" in str(explained)
    assert zones_in_log(store) == {"Asia/Kolkata": 1, "Pacific/Apia": 1}
    client.publish("sales", [{"at_minute": 0, "kind": "b"}])
    counts = [len(client.invoke(handle).rows) for handle in registered.handles]
    assert counts == [0, 1]


def test_other_rules_of_a_zone_bring_copies_whole(store: InsideStore, tmp_path: Path) -> None:
    """The next version of the rules moves the window, also of queries that were prepared before."""
    store.client.define("CREATE STREAM sales (at_minute BIGINT, kind TEXT)")
    sell(store, 11)
    text = f"SELECT at_minute FROM sales DURING TODAY{MADRID}"
    handle = store.client.register(text).handle
    with Copies(tmp_path / "phone.db", clock=store.now) as copies:
        copies.keep("sales", text)
        copies.sync(store.client)
        before = copies["sales"].rows()
        rules = machine_rules("Asia/Tokyo")
        moved = type(rules)("Europe/Madrid", 1, rules.starts[1:], rules.offsets)
        store.run(store.core.appender.submit(DefineZone(moved, renew=True)))
        store.run(store.core.appender.submit(DefineZone(moved, renew=True)))
        assert zones_in_log(store) == {"Europe/Madrid": 2}
        copies.sync(store.client)
        assert copies["sales"].rows() == store.client.invoke(handle).rows != before


def test_own_edits_are_in_the_windows_of_their_zone(store: InsideStore, tmp_path: Path) -> None:
    store.client.define("CREATE STREAM sales (at_minute BIGINT, kind TEXT)")
    queries = {
        "today": f"SELECT kind FROM sales DURING TODAY{MADRID}",
        "yesterday": f"SELECT kind FROM sales DURING YESTERDAY{MADRID}",
    }
    with Copies(tmp_path / "phone.db", clock=store.now) as copies:
        for name, text in queries.items():
            copies.keep(name, text, edits=True)
        copies.sync(store.client)
        copies.publish("sales", [{"at_minute": 0, "kind": "own"}])
        copies.send(store.client)

        def holding() -> list[str]:
            return [name for name in queries if copies[name].rows() == [{"kind": "own"}]]

        assert holding() == ["today"]
        # Saturday ends at 23:00 UTC, Sunday at 22:00.
        for hours, names in ((11, ["yesterday"]), (33.9, ["yesterday"]), (34, [])):
            store.clock = SATURDAY + int(hours * HOUR)
            assert holding() == names, hours


def test_sync_sends_the_rules_with_a_whole_answer(store: InsideStore) -> None:
    store.client.define("CREATE STREAM sales (at_minute BIGINT, kind TEXT)")
    handle = store.client.register(f"SELECT kind FROM sales DURING TODAY{MADRID}").handle
    parts = store.line.stream("Sync", pb.SyncRequest(items=[pb.SyncItem(handle=handle)]), None)
    (rules,) = next(parts).begin.zones
    madrid = machine_rules("Europe/Madrid")
    assert (rules.name, rules.version) == ("Europe/Madrid", 1)
    assert sum(rules.starts) * 10**6 == madrid.starts[-1]
    assert len(rules.offsets) == len(rules.starts) + 1
    parts.close()
