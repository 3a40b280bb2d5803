"""What any store must do for the SDK: run against the fake, and against a real server.

A test module takes `ClientContract` as a base and gives a fixture `client`. Every test makes
streams of its own, so that one store serves them all.
"""

from __future__ import annotations

import secrets
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from client_sdk import Client, Conflict, NotFound, PreconditionFailed, QueryProblem, RowProblem

BASE = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def fresh(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(6)}"


def trades(client: Client) -> str:
    """Return a new event-time stream."""
    name = fresh("trades")
    client.define(
        f"CREATE STREAM {name} (symbol TEXT, price DOUBLE, size BIGINT, at TIMESTAMP) ORDERED BY at"
    )
    return name


def trade(symbol: str, price: float | None, minute: int, size: int | None = 1) -> dict[str, object]:
    return {
        "symbol": symbol,
        "price": price,
        "size": size,
        "at": BASE + timedelta(minutes=minute),
    }


class ClientContract:
    def test_a_stream_is_described_as_it_was_defined(self, client: Client) -> None:
        name = fresh("s")
        defined = client.define(f"CREATE STREAM {name} (a BIGINT, b DECIMAL(10,2)) RETAIN 30 DAYS")
        described = client.stream(name)
        assert defined.stream.id == described.id
        assert [(column.name, column.type) for column in described.columns] == [
            ("a", "BIGINT"),
            ("b", "DECIMAL(10,2)"),
        ]
        assert described.retain == timedelta(days=30)
        assert described.ordered_by is None
        assert name in {stream.name for stream in client.streams()}

    def test_a_stream_without_retain_says_so(self, client: Client) -> None:
        assert client.define(f"CREATE STREAM {fresh('s')} (a BIGINT)").notes

    def test_a_second_stream_of_a_name_is_a_conflict(self, client: Client) -> None:
        name = trades(client)
        with pytest.raises(Conflict) as caught:
            client.define(f"CREATE STREAM {name} (a BIGINT)")
        assert caught.value.reason == "STREAM_EXISTS"

    def test_a_dropped_stream_is_gone(self, client: Client) -> None:
        name = trades(client)
        client.define(f"DROP STREAM {name}")
        with pytest.raises(NotFound) as caught:
            client.stream(name)
        assert caught.value.reason == "UNKNOWN_STREAM"

    def test_a_client_key_names_a_registration(self, client: Client) -> None:
        name, key = trades(client), fresh("key")
        with pytest.raises(NotFound, match=f"has no registration with client key {key!r}"):
            client.invoke(key)
        registration = client.register(f"SELECT symbol FROM {name}", key=key)
        client.publish(name, [trade("IBM", 99.0, 0)])
        client._session.handles.clear()
        assert client.invoke(key).rows == [{"symbol": "IBM"}]
        assert client.registration(key).handle == registration.handle
        with client.invoke_stream(key) as batches:
            assert sum(batch.num_rows for batch in batches) == 1
        assert client.explain(key).registration_count >= 1
        client.unregister(key)
        for call in (client.invoke, client.unregister, client.registration, client.explain):
            with pytest.raises(NotFound, match="client key"):
                call(key)

    def test_a_client_key_that_got_another_handle(self, client: Client) -> None:
        """This client remembers the old handle; another one has registered the key again."""
        name, key = trades(client), fresh("key")
        old = client.register(f"SELECT symbol FROM {name}", key=key)
        client.unregister(old)
        new = client.register(f"SELECT price FROM {name}", key=key)
        assert new.handle != old.handle
        client._session.handles[key] = old.handle
        client.publish(name, [trade("IBM", 99.0, 0)])
        assert client.invoke(key).rows == [{"price": 99.0}]
        assert client._session.handles[key] == new.handle

    def test_what_is_published_is_answered_at_once(self, client: Client) -> None:
        name = trades(client)
        query = client.register(f"SELECT symbol, price FROM {name} WHERE price > 100")
        published = client.publish(name, [trade("IBM", 99.0, 0), trade("IBM", 101.5, 1)])
        answer = client.invoke(query)
        assert published.row_count == 2
        assert answer.rows == [{"symbol": "IBM", "price": 101.5}]
        assert (answer.row_count, len(answer)) == (1, 1)
        assert answer.now == BASE + timedelta(minutes=1)
        assert [column.type for column in answer.columns] == ["TEXT", "DOUBLE"]

    def test_rows_from_before_the_registration_are_answered_too(self, client: Client) -> None:
        name = trades(client)
        client.publish(name, [trade("IBM", 1.0, 0)])
        assert len(client.invoke(client.register(f"SELECT * FROM {name}"))) == 1

    def test_an_answer_without_rows_still_has_columns(self, client: Client) -> None:
        name = trades(client)
        answer = client.invoke(client.register(f"SELECT symbol FROM {name} WHERE price > 1"))
        assert answer.rows == []
        assert answer.to_arrow().column_names == ["symbol"]

    def test_every_type_comes_back_as_it_went(self, client: Client) -> None:
        name = fresh("s")
        client.define(
            f"CREATE STREAM {name} (a BOOLEAN, b BIGINT, c DOUBLE, d DECIMAL(20,4), e TEXT, "
            "f TIMESTAMP, g DATE)"
        )
        row = {
            "a": True,
            "b": -(2**63),
            "c": 0.1,
            "d": Decimal("-12345.6789"),
            "e": "naïve ☃",
            "f": datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            "g": date(9999, 12, 31),
        }
        nothing = dict.fromkeys(row)
        client.publish(name, [row, nothing])
        assert client.invoke(client.register(f"SELECT * FROM {name}")).rows == [row, nothing]

    def test_arrow_goes_in_and_comes_out(self, client: Client) -> None:
        name = fresh("s")
        client.define(f"CREATE STREAM {name} (a BIGINT, b TEXT)")
        table = pa.table({"b": ["x", None], "a": pa.array([1, 2], pa.int8())})
        client.publish(name, table)
        answer = client.invoke(client.register(f"SELECT b, a FROM {name}"))
        assert answer.to_arrow().to_pydict() == {"b": ["x", None], "a": [1, 2]}

    def test_a_query_is_answered_without_registering_it(self, client: Client) -> None:
        name = trades(client)
        client.publish(name, [trade("IBM", 1.0, 0), trade("DEC", 2.0, 30), trade("DEC", 3.0, 60)])
        sql = f"SELECT price FROM {name} WHERE symbol = :which BEGIN NOW - 10 MINUTES END NOW"
        assert client.ask(sql, parameters={"which": "DEC"}).rows == [{"price": 3.0}]
        then = client.ask(
            sql,
            parameters={"which": "DEC"},
            as_of=BASE + timedelta(minutes=31),
            knowledge="today",
        )
        assert then.rows == [{"price": 2.0}]
        with client.ask_stream(f"SELECT * FROM {name}") as answer:
            assert sum(batch.num_rows for batch in answer) == 3
        assert not [
            registration for registration in client.registrations() if registration.stream == name
        ]

    def test_a_bad_question_says_where(self, client: Client) -> None:
        name = trades(client)
        with pytest.raises(QueryProblem) as caught:
            client.ask(f"SELECT prise FROM {name}")
        assert (caught.value.line, caught.value.column) == (1, len("SELECT ") + 1)

    def test_a_registration_is_explained(self, client: Client) -> None:
        name = trades(client)
        client.publish(name, [trade("IBM", 1.0, 0), trade("DEC", 2.0, 30), trade("DEC", 3.0, 60)])
        query = client.register(f"SELECT price FROM {name} WHERE symbol LIKE 'D%'")
        explanation = client.explain(query)
        assert (
            explanation.registration_count,
            explanation.stream_rows,
            explanation.run.answer_rows,
        ) == (1, 3, 2)
        assert [factor.access for factor in explanation.factors] == ["compared"]
        assert [name for name, _ in explanation.run.stages] == [
            "plan",
            "window",
            "match",
            "take",
            "shape",
            "encode",
        ]
        recent = client.explain(query, window="BEGIN NOW - 10 MINUTES END NOW")
        assert recent.run.answer_rows == 1
        everything = client.register(f"SELECT price FROM {name}")
        assert client.explain(everything).factors == ()
        with pytest.raises(NotFound):
            client.explain(bytes(16))

    def test_a_window_is_applied_when_asking(self, client: Client) -> None:
        name = trades(client)
        query = client.register(f"SELECT size FROM {name} BEGIN NOW - 10 MINUTES END NOW")
        client.publish(name, [trade("IBM", 1.0, minute, minute) for minute in range(0, 61, 5)])
        assert [row["size"] for row in client.invoke(query)] == [50, 55, 60]
        wider = client.invoke(query, window="BEGIN NOW - 20 MINUTES END NOW")
        assert [row["size"] for row in wider] == [40, 45, 50, 55, 60]

    def test_a_heartbeat_moves_now(self, client: Client) -> None:
        name = trades(client)
        query = client.register(f"SELECT size FROM {name} BEGIN NOW - 10 MINUTES END NOW")
        client.publish(name, [trade("IBM", 1.0, 0)])
        later = BASE + timedelta(hours=1)
        client.heartbeat(name, later)
        answer = client.invoke(query)
        assert (answer.rows, answer.now) == ([], later)

    def test_a_large_answer_comes_in_batches(self, client: Client) -> None:
        name = fresh("s")
        client.define(f"CREATE STREAM {name} (a BIGINT)")
        client.publish(name, pa.table({"a": range(50_000)}))
        query = client.register(f"SELECT a FROM {name}")
        with client.invoke_stream(query) as answer:
            values = [value for batch in answer for value in batch.column(0).to_pylist()]
        assert answer.header.row_count == 50_000
        assert values == list(range(50_000))

    def test_one_key_is_one_registration(self, client: Client) -> None:
        name, key = trades(client), fresh("key")
        first = client.register(f"SELECT symbol FROM {name}", key=key)
        again = client.register(f"SELECT symbol FROM {name}", key=key)
        assert (first.created, again.created) == (True, False)
        assert first.handle == again.handle
        with pytest.raises(Conflict) as caught:
            client.register(f"SELECT price FROM {name}", key=key)
        assert caught.value.reason == "CLIENT_KEY_TAKEN"

    def test_a_query_takes_the_place_of_another(self, client: Client) -> None:
        name, key = trades(client), fresh("key")
        client.publish(name, [trade("IBM", 1.0, 0), trade("DEC", 2.0, 1)])
        first = client.register(f"SELECT symbol FROM {name}", key=key)
        sql = f"SELECT price FROM {name} WHERE symbol = :which"
        replaced = client.register(sql, key=key, parameters={"which": "DEC"}, replace=True)
        assert (replaced.handle, replaced.created, replaced.replaced) == (first.handle, False, True)
        assert client.invoke(first).rows == [{"price": 2.0}]
        registration = client.registration(first)
        assert (registration.sql, registration.key, registration.parameters) == (
            sql,
            key,
            {"which": "DEC"},
        )
        again = client.register(sql, key=key, parameters={"which": "DEC"}, replace=True)
        assert not again.replaced and again.position == replaced.position
        table = [{"which": "IBM", "client_key": key}]
        many = client.register_many(sql, table, replace=True)
        assert (many.handles, many.created_count, many.replaced_count) == ((first.handle,), 0, 1)
        assert client.invoke(first).rows == [{"price": 1.0}]

    def test_parameters_have_values(self, client: Client) -> None:
        name = trades(client)
        client.publish(name, [trade("IBM", 1.0, 0), trade("DEC", 2.0, 1)])
        query = client.register(
            f"SELECT price FROM {name} WHERE symbol = :which", parameters={"which": "DEC"}
        )
        assert client.invoke(query).rows == [{"price": 2.0}]
        assert client.registration(query).parameters == {"which": "DEC"}

    def test_many_registrations_of_one_text(self, client: Client) -> None:
        name = trades(client)
        client.publish(name, [trade("IBM", 1.0, 0), trade("DEC", 2.0, 1)])
        sql = f"SELECT price FROM {name} WHERE symbol = :which"
        values = [{"which": "DEC", "client_key": fresh("k")}, {"which": "IBM", "client_key": ""}]
        many = client.register_many(sql, values)
        assert many.created_count == 2
        assert [client.invoke(handle).rows for handle in many.handles] == [
            [{"price": 2.0}],
            [{"price": 1.0}],
        ]
        table = pa.table({"which": ["IBM"]})
        assert client.invoke(client.register_many(sql, table).handles[0]).rows == [{"price": 1.0}]

    def test_registrations_are_listed_page_by_page(self, client: Client) -> None:
        name = trades(client)
        handles = [client.register(f"SELECT symbol FROM {name}").handle for _ in range(5)]
        listed = list(client.registrations(page_size=2))
        assert [
            registration.handle for registration in listed if registration.stream == name
        ] == handles or {
            registration.handle for registration in listed if registration.stream == name
        } == set(handles)

    def test_an_ended_registration_is_not_found(self, client: Client) -> None:
        query = client.register(f"SELECT symbol FROM {trades(client)}")
        client.unregister(query.hex)
        for verb in (client.invoke, client.registration, client.unregister):
            with pytest.raises(NotFound) as caught:
                verb(query)
            assert caught.value.reason == "UNKNOWN_HANDLE"

    def test_a_sequence_is_taken_once(self, client: Client) -> None:
        name, who = trades(client), fresh("publisher")
        rows = [trade("IBM", 1.0, 0)]
        first = client.publish(name, rows, publisher=who, sequence=1)
        again = client.publish(name, rows, publisher=who, sequence=1)
        assert (first.duplicate, again.duplicate) == (False, True)
        assert first.position == again.position
        assert client.stream(name).row_count == 1
        with pytest.raises(Conflict) as reused:
            client.publish(name, [trade("IBM", 2.0, 0)], publisher=who, sequence=1)
        assert reused.value.reason == "SEQUENCE_REUSED"
        with pytest.raises(PreconditionFailed) as gap:
            client.publish(name, rows, publisher=who, sequence=3)
        assert gap.value.reason == "SEQUENCE_GAP"

    def test_a_publisher_counts_and_starts_over_without_harm(self, client: Client) -> None:
        name, who = trades(client), fresh("publisher")
        batches = [[trade("IBM", float(n), n)] for n in range(10)]
        publisher = client.publisher(who)
        many = publisher.publish_many(name, batches)
        assert (many.row_count, many.duplicate_rows, publisher.next_sequence) == (10, 0, 11)
        over = client.publisher(who)
        assert over.publish_many(name, batches).duplicate_rows == 10
        over.heartbeat(name, BASE + timedelta(days=1))
        assert client.stream(name).row_count == 10
        assert client.stream(name).now == BASE + timedelta(days=1)

    def test_a_bad_query_says_where(self, client: Client) -> None:
        name = trades(client)
        with pytest.raises(QueryProblem) as caught:
            client.register(f"SELECT symbol FROM {name} WHERE prise > 1")
        assert caught.value.line == 1
        assert caught.value.column == len(f"SELECT symbol FROM {name} WHERE ") + 1
        assert "^" in caught.value.excerpt

    def test_bad_rows_leave_nothing_behind(self, client: Client) -> None:
        name = trades(client)
        with pytest.raises(RowProblem) as caught:
            client.publish(name, [trade("IBM", 1.0, 0), trade("IBM", 1.0, 0, "many")])  # type: ignore[arg-type]
        assert (caught.value.row, caught.value.field) == (1, "size")
        assert client.stream(name).row_count == 0

    def test_a_stream_made_anew_is_noticed(self, client: Client) -> None:
        name = trades(client)
        client.publish(name, [trade("IBM", 1.0, 0)])
        with Client(transport=client._transport) as second_client:
            second_client.define(f"DROP STREAM {name}")
            second_client.define(f"CREATE STREAM {name} (other BIGINT)")
            assert client.publish(name, [{"other": 1}]).row_count == 1

    def test_a_row_replaces_the_earlier_row_of_its_key(self, client: Client) -> None:
        name = fresh("parking")
        defined = client.define(f"CREATE STREAM {name} (place TEXT, free BIGINT) KEY (place)")
        assert defined.stream.key == client.stream(name).key == ("place",)
        query = client.register(f"SELECT place, free FROM {name}")
        client.publish(name, [{"place": "a", "free": 5}, {"place": "b", "free": 7}])
        client.publish(name, [{"place": "a", "free": 4, "_op": "row"}])
        assert client.invoke(query).rows == [{"place": "b", "free": 7}, {"place": "a", "free": 4}]
        assert client.delete(name, [{"place": "b"}]).row_count == 1
        assert client.invoke(query).rows == [{"place": "a", "free": 4}]
        ops = pa.table({"place": ["a", "c"], "free": [None, 9], "_op": ["delete", None]})
        client.publisher(fresh("publisher")).publish(name, ops)
        assert client.invoke(query).rows == [{"place": "c", "free": 9}]

    def test_a_row_without_its_key_is_refused(self, client: Client) -> None:
        name = fresh("parking")
        client.define(f"CREATE STREAM {name} (place TEXT, free BIGINT) KEY (place)")
        with pytest.raises(RowProblem) as caught:
            client.publish(name, [{"place": "a", "free": 1}, {"place": None, "free": 1}])
        assert (caught.value.reason, caught.value.row) == ("NULL_KEY", 1)
        with pytest.raises(RowProblem):
            client.publish(name, [{"place": "a"}])
        assert client.stream(name).row_count == 0
