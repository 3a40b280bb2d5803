"""Texts that compute with time zones, through every call: each answer is by the store's rules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from client_sdk import InvalidRequest
from client_sdk.copies import Copies
from datastem.instants import DAY, HOUR, to_micros
from datastem.zones import ZoneRules, machine_rules
from psoup.write.zones import DefineZone
from tests.support.client_sdk.inside import InsideStore
from tests.support.server.epochs import HandMadeEngine

# Madrid's clock is set ahead at 01:00 UTC the next day.
SATURDAY = to_micros(datetime(2026, 3, 28, 12, tzinfo=UTC))
MADRID = "Europe/Madrid"
DAY_OF = f"date_trunc('day', ts, '{MADRID}')"
HOUR_OF = f"extract(hour FROM ts AT TIME ZONE '{MADRID}')"
BY_DAY = f"SELECT {DAY_OF} AS day, count(*) AS n, sum(n) AS total FROM sales GROUP BY {DAY_OF}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[InsideStore]:
    inside = InsideStore(tmp_path)
    inside.clock = SATURDAY
    inside.client.define("CREATE STREAM sales (n BIGINT, due DATE) RETAIN 30 DAYS")
    inside.client.define("CREATE STREAM days (day DATE, name TEXT) KEY (day)")
    yield inside
    inside.close()


def sell(store: InsideStore, count: int = 20) -> list[dict[str, int]]:
    """Publish a row every three hours; return the rows with the hours and days of Madrid."""
    rows = []
    for number in range(count):
        store.clock += 3 * HOUR
        store.client.publish("sales", [{"n": number, "due": datetime(2026, 3, 29).date()}])
        # The offset is one hour, and two from Sunday at 01:00 UTC on.
        local = store.clock + (2 if store.clock >= SATURDAY + 13 * HOUR else 1) * HOUR
        rows.append({"n": number, "hour": local // HOUR % 24, "day": local // DAY})
    return rows


def test_a_condition_is_matched_and_computed(store: InsideStore) -> None:
    engine = HandMadeEngine(store.core.store)
    text = f"SELECT n FROM sales WHERE {HOUR_OF} >= 12 ORDER BY n"
    handle = store.client.register(text).handle
    (predicate,) = store.core.follower.state.predicates.values()
    assert machine_rules(MADRID).packed in predicate.key
    rows = sell(store, 10)
    engine.step()
    expected = [row["n"] for row in rows if row["hour"] >= 12]
    for answer in (store.client.invoke(handle), store.client.ask(text)):
        assert [row["n"] for row in answer.rows] == expected
    registered = store.client.register(text)
    (leg,) = store.client.explain(registered.handle).legs
    assert "AT TIME ZONE 'Europe/Madrid'" in leg.factors[0].text


def test_groups_views_functions_and_joins_agree(store: InsideStore) -> None:
    rows = sell(store)
    client = store.client
    expected = [
        {"day": day, "n": sum(row["day"] == day for row in rows)}
        for day in sorted({row["day"] for row in rows})
    ]
    day = f"CAST(ts AT TIME ZONE '{MADRID}' AS DATE)"
    client.define(
        f"CREATE FUNCTION local_day(t TIMESTAMP) AS CAST(t AT TIME ZONE '{MADRID}' AS DATE)"
    )
    client.define("CREATE VIEW daily AS SELECT local_day(ts) AS day, n FROM sales")
    client.publish("days", [{"day": datetime(2026, 3, 29).date(), "name": "short"}])
    texts = (
        f"SELECT {day} AS day, count(*) AS n FROM sales GROUP BY {day} ORDER BY day",
        "SELECT day, count(*) AS n FROM daily GROUP BY day ORDER BY day",
        "SELECT local_day(ts) AS day, count(*) AS n FROM sales GROUP BY local_day(ts) ORDER BY 1",
        f"SELECT {day} AS day, count(*) AS n FROM sales GROUP BY {day}"
        f" HAVING extract(hour FROM max(ts) AT TIME ZONE '{MADRID}') >= 0 ORDER BY day",
    )
    for text in texts:
        answer = client.invoke(client.register(text).handle).rows
        assert [(row["day"].toordinal() - 719163, row["n"]) for row in answer] == [
            (row["day"], row["n"]) for row in expected
        ]
    joined = client.ask(
        f"SELECT count(*) AS n FROM sales AS s, days AS d WHERE d.day ="
        f" CAST(s.ts AT TIME ZONE '{MADRID}' AS DATE) AND d.name = 'short'"
    )
    assert joined.rows == [{"n": 8}]


def test_days_of_date_trunc_are_those_of_windows(store: InsideStore) -> None:
    sell(store)
    client = store.client
    for window in ("YESTERDAY", "TODAY", "THIS HOUR", "LAST 3 HOURS"):
        text = f"SELECT n, {DAY_OF} AS day FROM sales DURING {window} AT TIME ZONE '{MADRID}'"
        days = {row["day"] for row in client.ask(text).rows}
        assert len(days) <= 1 or "HOURS" in window


def test_many_rows_of_values_get_the_rules(store: InsideStore) -> None:
    rows = sell(store)
    values = [{"least": 3}, {"least": 12}]
    for text in (
        f"SELECT n FROM sales WHERE {HOUR_OF} >= :least AND n < 100 ORDER BY n",
        f"SELECT n FROM sales WHERE {HOUR_OF} >= :least ORDER BY n LIMIT 100",
    ):
        handles = store.client.register_many(text, values).handles
        for handle, value in zip(handles, values, strict=True):
            answer = [row["n"] for row in store.client.invoke(handle).rows]
            assert answer == [row["n"] for row in rows if row["hour"] >= value["least"]]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT CAST(ts AT TIME ZONE 'Europe/Nowhere' AS DATE) AS d FROM sales",
        "SELECT n FROM sales DURING TODAY AT TIME ZONE 'Europe/Nowhere'",
        "CREATE VIEW v AS SELECT n FROM sales DURING TODAY AT TIME ZONE 'Europe/Nowhere'",
        "CREATE VIEW v AS SELECT date_trunc('day', ts, 'Europe/Nowhere') AS d FROM sales",
        "CREATE FUNCTION f(t TIMESTAMP) AS date_trunc('day', t, 'Europe/Nowhere')",
        "CREATE POLICY p ON sales USING (extract(hour FROM ts AT TIME ZONE 'Europe/Nowhere') = 1)",
    ],
)
def test_a_zone_that_nobody_knows_is_refused(store: InsideStore, statement: str) -> None:
    with pytest.raises(InvalidRequest, match="no rules of the time zone Europe/Nowhere"):
        if statement.startswith("SELECT"):
            store.client.register(statement)
        else:
            store.client.define(statement)
    assert not store.core.follower.state.zones and not store.core.follower.state.views


def test_base_rows_are_computed_with_the_rules_of_the_copy(
    store: InsideStore, tmp_path: Path
) -> None:
    rows = sell(store, 10)
    with Copies(tmp_path / "copies.db") as copies:
        copy = copies.keep("days", BY_DAY, base_rows=True)
        copies.sync(store.client)
        assert sorted(row["n"] for row in copy.rows()) == sorted(
            sum(row["day"] == day for row in rows) for day in {row["day"] for row in rows}
        )
        assert copy.rows() == store.client.ask(BY_DAY).rows


def test_rules_of_the_store_are_used_and_not_those_of_the_machine(store: InsideStore) -> None:
    tokyo = machine_rules("Asia/Tokyo")
    rules = ZoneRules(MADRID, 1, np.empty(0, np.int64), tokyo.offsets[-1:])
    store.run(store.core.appender.submit(DefineZone(rules)))
    store.clock = SATURDAY
    store.client.publish("sales", [{"n": 1, "due": None}])
    assert store.client.ask(f"SELECT {HOUR_OF} AS hour FROM sales").rows == [{"hour": 21}]


# ---- other rules


def test_other_rules_hold_for_all_answers_at_once(store: InsideStore, tmp_path: Path) -> None:
    """The store has rules of Madrid without summer time, then those of this machine."""
    client, core, engine = store.client, store.core, HandMadeEngine(store.core.store)
    # Madrid's offsets until 2020, and for ever one hour.
    rules = machine_rules(MADRID)
    first = int(np.searchsorted(rules.starts[1:], to_micros(datetime(2020, 1, 1, tzinfo=UTC))))
    fixed = ZoneRules(MADRID, 1, rules.starts[1 : first + 1], rules.offsets[: first + 1])
    store.run(core.appender.submit(DefineZone(fixed)))
    texts = {
        "matched": f"SELECT n FROM sales WHERE {HOUR_OF} >= 12 ORDER BY n",
        "grouped": f"{BY_DAY} ORDER BY day",
        "shown": f"SELECT n, {HOUR_OF} AS hour FROM sales ORDER BY n",
        "joined": "SELECT count(*) AS pairs FROM sales AS a, sales AS b WHERE"
        f" {DAY_OF.replace('ts', 'a.ts')} = {DAY_OF.replace('ts', 'b.ts')}",
        "refreshed": f"SELECT count(*) AS n FROM sales REFRESH ON sales WHERE {HOUR_OF} = 0",
        "windowed": f"SELECT n FROM sales ORDER BY n DURING LAST 3 DAYS AT TIME ZONE '{MADRID}'",
        "plain": "SELECT n FROM sales WHERE n > 3 ORDER BY n",
    }
    handles = {name: client.register(text).handle for name, text in texts.items()}
    state = core.follower.state
    before = {name: state.registrations[handle] for name, handle in handles.items()}
    # There are rows at 22:00 UTC, which is midnight in summer.
    store.clock += HOUR
    rows = sell(store)
    engine.step()
    with Copies(tmp_path / "copies.db", clock=store.now) as copies:
        for name, text in texts.items():
            copies.keep(name, text)
        assert copies.sync(client).complete
        old = {name: client.invoke(handle).rows for name, handle in handles.items()}
        assert [row["hour"] for row in old["shown"]][-1] == (rows[-1]["hour"] - 1) % 24
        assert [zone.outdated for zone in client.zones().zones] == [True]

        renewed = client.zones(renew=[MADRID])
        (zone,) = renewed.zones
        assert (zone.name, zone.version, zone.outdated) == (MADRID, 2, False)
        # Each text is registered twice, by the copies too.
        assert renewed.registration_count == 6
        new = {name: client.invoke(handle).rows for name, handle in handles.items()}
        direct = {name: client.ask(text).rows for name, text in texts.items()}
        assert new == direct and [row["hour"] for row in new["shown"]] == [r["hour"] for r in rows]
        assert {name for name in texts if new[name] != old[name]} == {*texts} - {"plain"}
        engine.step()
        assert new == {name: client.invoke(handle).rows for name, handle in handles.items()}
        outcome = copies.sync(client)
        assert {name: copies[name].rows() for name in texts} == new
        assert {name for name, change in outcome.items() if change.whole} == {*texts} - {"plain"}
    after = {name: core.follower.state.registrations[handle] for name, handle in handles.items()}
    for name, registration in after.items():
        was = before[name]
        assert (registration.position, registration.contact) == (was.position, was.contact)
        renewed_predicates = registration.predicates != was.predicates
        assert renewed_predicates == (name in ("matched", "joined", "refreshed"))
        for old_id in set(was.predicates) - set(registration.predicates):
            assert old_id not in core.follower.state.predicates
    assert client.zones(renew=[MADRID]).registration_count == 0
    with pytest.raises(InvalidRequest, match="no rules of the time zone Asia/Tokyo"):
        client.zones(renew=["Asia/Tokyo"])
