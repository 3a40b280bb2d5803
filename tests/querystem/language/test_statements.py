"""CREATE STREAM, DROP STREAM, and the text of a schema."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastem.instants import DAY, HOUR, MINUTE, SECOND
from datastem.schema import Column, StreamSchema, Validity
from datastem.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, TIMESTAMP, decimal_type
from querystem.language import (
    CreateStream,
    DropStream,
    GrantActions,
    QueryError,
    parse_statement,
    stream_sql,
)
from querystem.language.tokens.names import RESERVED
from tests.querystem.language.support import schema_of

TYPES = [BOOLEAN, BIGINT, DOUBLE, decimal_type(10, 2), decimal_type(38, 38), TEXT, TIMESTAMP, DATE]
names = st.one_of(
    st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True), st.sampled_from(sorted(RESERVED))
).filter(lambda name: name not in ("ts", "row_id"))


@st.composite
def schemas(draw: st.DrawFn) -> StreamSchema:
    columns = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    types = [draw(st.sampled_from(TYPES)) for _ in columns]
    times = [name for name, type_ in zip(columns, types, strict=True) if type_ == TIMESTAMP]
    ordered_by = draw(st.sampled_from([None, *times]))
    by_clock = ordered_by is not None and draw(st.booleans())
    moves_now = ordered_by is not None and not by_clock
    retain = draw(st.none() | st.integers(1, 10**15))
    key = tuple(draw(st.lists(st.sampled_from(columns), unique=True)))
    validity = None
    if ordered_by is None and len(times) > 1 and draw(st.booleans()):
        validity = Validity(times[0], times[1], retain)
    return StreamSchema(
        name=draw(names),
        columns=tuple(map(Column, columns, types)),
        ordered_by=ordered_by,
        by_clock=by_clock,
        slack=draw(st.sampled_from([0, 1, HOUR])) if moves_now else 0,
        lead=draw(st.sampled_from([None, 0, MINUTE, HOUR])) if moves_now else None,
        retain=retain if validity is None or key else None,
        ahead=HOUR if validity else draw(st.sampled_from([HOUR, 0, 1, 90 * MINUTE])),
        key=key,
        validity=validity,
    )


@given(schemas())
def test_a_schema_written_as_text_parses_to_itself(schema: StreamSchema) -> None:
    assert schema_of(stream_sql(schema)) == schema


def test_the_example_of_the_language() -> None:
    statement = parse_statement(
        """CREATE STREAM trades (symbol TEXT, price DOUBLE, size BIGINT, at TIMESTAMP)
        ORDERED BY at        -- event time; without it a row's ts is the stamp of its arrival
        RETAIN 30 DAYS       -- how far back any window may reach
        AHEAD 1 HOUR         -- a row dated further ahead is refused"""
    )
    columns = (
        Column("symbol", TEXT),
        Column("price", DOUBLE),
        Column("size", BIGINT),
        Column("at", TIMESTAMP),
    )
    assert statement == CreateStream(StreamSchema("trades", columns, "at", 30 * DAY, HOUR))


def test_a_key_names_columns_in_its_own_order() -> None:
    schema = schema_of("CREATE STREAM t (a BIGINT, b TEXT, c DATE) RETAIN 1 HOUR KEY (C, a)")
    assert schema.key == ("c", "a")
    assert schema.payload.names == ["_op", "a", "b", "c"]


def test_names_are_folded_and_options_come_in_any_order() -> None:
    schema = schema_of(
        "create stream T (A bigint, Ts timestamp) ahead 1.5 retain 90 ordered by TS;"
    )
    assert schema == StreamSchema(
        "t", (Column("a", BIGINT), Column("ts", TIMESTAMP)), "ts", 90 * SECOND, 1_500_000
    )


def test_a_validity_is_two_columns_and_its_own_retention() -> None:
    text = (
        "CREATE STREAM t (k BIGINT, a TIMESTAMP, b TIMESTAMP) VALID FROM a UNTIL b RETAIN 1 DAY{}"
    )
    schema = schema_of(text.format(""))
    assert schema.validity == Validity("a", "b", DAY) and schema.retain is None
    assert schema.retention == DAY and schema.ts_is_stamp and schema.now_is_clock
    keyed = schema_of(text.format(" KEY (k)"))
    assert keyed.validity == schema.validity and keyed.retain == DAY
    assert StreamSchema.from_json(keyed.to_json()) == keyed
    renamed = replace(keyed, columns=(*keyed.columns[:2], replace(keyed.columns[2], renamed="c")))
    assert "VALID FROM a UNTIL c" in stream_sql(renamed)


def test_a_stream_without_retention_says_so() -> None:
    statement = parse_statement("CREATE STREAM t (a BIGINT)")
    assert isinstance(statement, CreateStream)
    assert statement.notes == ("t has no RETAIN: its rows are kept for ever",)


def test_drop() -> None:
    statement = parse_statement("DROP STREAM Trades;")
    assert isinstance(statement, DropStream) and statement.name == "trades"
    assert (statement.span.start, statement.span.end) == (12, 18)


def test_the_number_of_columns_has_a_limit() -> None:
    columns = ", ".join(f"c{i} BIGINT" for i in range(1001))
    with pytest.raises(QueryError) as caught:
        parse_statement(f"CREATE STREAM t ({columns})")
    assert caught.value.reason == "TOO_MANY_COLUMNS"
    parse_statement(f"CREATE STREAM t ({columns})", max_columns=1001)
    with pytest.raises(QueryError):
        parse_statement("CREATE STREAM t (a BIGINT, b BIGINT)", max_columns=1)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (
            "GRANT read, REGISTER, read ON Orders TO ROLE field",
            (("read", "register"), "orders", "role", "field", False),
        ),
        (
            "grant administer on all to owner 'Alice B.';",
            (("administer",), None, "owner", "Alice B.", False),
        ),
        ('REVOKE publish ON "all" FROM ROLE x', (("publish",), "all", "role", "x", True)),
    ],
)
def test_grants(text: str, meaning: tuple[object, ...]) -> None:
    statement = parse_statement(text)
    assert isinstance(statement, GrantActions)
    assert (
        statement.actions,
        statement.name,
        statement.to,
        statement.grantee,
        statement.revoked,
    ) == meaning


def test_spellings_of_other_systems_are_taken_with_a_note() -> None:
    foreign = parse_statement(
        "CREATE STREAM t (a varchar, b VARCHAR, c Integer, d REAL, e DOUBLE PRECISION) RETAIN 1 DAY"
    )
    plain = parse_statement(
        "CREATE STREAM t (a TEXT, b TEXT, c BIGINT, d DOUBLE, e DOUBLE) RETAIN 1 DAY"
    )
    assert isinstance(foreign, CreateStream) and isinstance(plain, CreateStream)
    assert foreign.schema == plain.schema and plain.notes == ()
    assert foreign.notes == (
        "VARCHAR is taken as TEXT",
        "INTEGER is taken as BIGINT",
        "REAL is taken as DOUBLE",
        "DOUBLE PRECISION is taken as DOUBLE",
    )
