"""RegisterMany of some rows is Register of each: the same types, queries and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import grpc
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_sdk._wire.values import from_value, to_value
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.process import ServerProcess, detail, ipc, rows_of

pytestmark = pytest.mark.process

TEXTS = [
    "SELECT a FROM s WHERE a = :p",
    "SELECT a FROM s WHERE d >= :p AND a <> :q",
    "SELECT a FROM s WHERE t = :p OR a > :q",
    "SELECT a FROM s WHERE at > :p",
    "SELECT a FROM s WHERE :p",
    "SELECT :p AS p FROM s",
    "SELECT a + :p AS p, coalesce(:q, a) AS q FROM s",
    "SELECT d * :p AS p FROM s WHERE d < :q",
    "SELECT count(*) AS n FROM s GROUP BY a % :p HAVING count(*) > :q",
    "SELECT a FROM s ORDER BY a + :q LIMIT :p",
    "SELECT a FROM s WHERE a > :q RANGE :p SECONDS",
]
VALUES: list[Any] = [
    None, None, 0, 7, -3, 2**62, 0.0, -0.0, 0.5, 2.0, True, "", "x", "2026-11-16",
    Decimal("1"), Decimal("1.0"), Decimal("1.00"), Decimal("-12.50"), Decimal("0.001"),
    Decimal("1E+3"), Decimal("9" * 38), Decimal("9" * 39),
]  # fmt: skip
Row = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("rows")
    server = ServerProcess(folder / "store", "--durability", "none")
    server.define("CREATE STREAM s (a BIGINT, d DECIMAL(10,2), t TEXT, at TIMESTAMP)")
    yield server
    server.stop()


def registered(server: ServerProcess, handle: bytes) -> tuple[Any, ...]:
    """All that the store says of a registration, but for when it was made."""
    registration = server.stub.DescribeRegistration(pb.DescribeRegistrationRequest(handle=handle))
    parameters = {name: repr(from_value(value)) for name, value in registration.parameters.items()}
    columns = [(column.name, column.type) for column in registration.columns]
    return parameters, columns, registration.window, registration.pattern, registration.refresh


def each(server: ServerProcess, sql: str, rows: list[Row]) -> list[Any]:
    registrations = []
    for row in rows:
        values = {name: to_value(value) for name, value in row.items()}
        handle = server.register(sql, parameters=values).handle
        registrations.append(registered(server, handle))
    return registrations


def together(server: ServerProcess, sql: str, **table: Any) -> list[Any]:
    response = server.stub.RegisterMany(pb.RegisterManyRequest(sql=sql, **table))
    return [registered(server, handle) for handle in response.handles]


def typed(rows: list[Row]) -> pb.Rows:
    names = list(rows[0])
    return rows_of(names, *([to_value(row[name]) for name in names] for row in rows))


def outcome(call: Any, *arguments: Any, **fields: Any) -> list[Any] | str:
    try:
        registrations: list[Any] = call(*arguments, **fields)
        return registrations
    except grpc.RpcError as error:
        return detail(error).reason


@settings(max_examples=80)
@given(st.data(), st.sampled_from(TEXTS))
def test_typed_rows(server: ServerProcess, data: st.DataObject, sql: str) -> None:
    names = [name for name in ("p", "q") if f":{name}" in sql]
    row = st.fixed_dictionaries({name: st.sampled_from(VALUES) for name in names})
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    alone = [outcome(each, server, sql, [parameters]) for parameters in rows]
    refused = [registration for registration in alone if isinstance(registration, str)]
    many = outcome(together, server, sql, rows=typed(rows))
    if refused:
        assert many in refused
    else:
        assert many == [registration[0] for registration in alone]


@pytest.mark.parametrize("sql", TEXTS)
@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 7], pa.int32()),
        pa.array([None, None]),
        pa.array([None], pa.int64()),
        pa.array([0.5, None, 2.0]),
        pa.array([Decimal("1.50"), None, Decimal("12.25")], pa.decimal128(10, 2)),
        pa.array(["x", None, "2026-11-16"]),
    ],
    ids=str,
)
def test_columns_of_arrow(server: ServerProcess, sql: str, column: pa.Array) -> None:
    names = [name for name in ("p", "q") if f":{name}" in sql]
    table = pa.table(dict.fromkeys(names, column))
    alone = [outcome(each, server, sql, [row]) for row in table.to_pylist()]
    many = outcome(together, server, sql, arrow=ipc(table))
    refused = [registration for registration in alone if isinstance(registration, str)]
    if refused:
        assert many in refused
    else:
        assert many == [registration[0] for registration in alone]


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT a FROM s WHERE a = :p", [None, None]),
        ("SELECT a FROM s WHERE a = :p", [0, 0.5]),
        ("SELECT a FROM s WHERE d = :p", [0.5, 1, Decimal("0.25"), None]),
    ],
)
def test_what_is_taken_alone_is_taken_together(
    server: ServerProcess, sql: str, values: list[Any]
) -> None:
    rows = [{"p": value} for value in values]
    assert together(server, sql, rows=typed(rows)) == each(server, sql, rows)


def test_null_alone_has_no_type_in_either(server: ServerProcess) -> None:
    rows = [{"p": None}]
    assert outcome(together, server, "SELECT :p AS p FROM s", rows=typed(rows)) == "TYPE_MISMATCH"
    assert outcome(each, server, "SELECT :p AS p FROM s", rows) == "TYPE_MISMATCH"


def test_a_wrong_value_is_found_in_its_row(server: ServerProcess) -> None:
    rows = rows_of(["p"], [pb.Value(decimal="1")], [pb.Value(decimal="one")])
    with pytest.raises(grpc.RpcError) as caught:
        together(server, "SELECT a FROM s WHERE d = :p", rows=rows)
    problem = detail(caught.value)
    assert (problem.reason, problem.row, problem.field) == ("BAD_VALUE", 1, "p")


def test_columns_have_different_names(server: ServerProcess) -> None:
    rows = rows_of(["p", "p"], [pb.Value(bigint=1), pb.Value(bigint=2)])
    assert outcome(together, server, TEXTS[0], rows=rows) == "DUPLICATE_COLUMN"


def test_a_text_past_the_limit_is_refused_in_either(server: ServerProcess) -> None:
    rows = [{"p": "x" * (1 << 20) + "x", "q": 1}]
    arrow = ipc(pa.Table.from_pylist(rows))
    assert outcome(together, server, TEXTS[2], arrow=arrow) == "VALUE_TOO_LONG"
    # A message without Arrow has no room for such a text.
    assert outcome(together, server, TEXTS[2], rows=typed(rows)) == "BATCH_TOO_LARGE"
    assert outcome(each, server, TEXTS[2], rows) == "MESSAGE_TOO_LARGE"


def test_a_call_with_many_kinds_of_rows_registers_them_in_order(server: ServerProcess) -> None:
    rows = [{"p": value, "q": 1} for value in (3, 0.5, None, Decimal("1.5"), 3)]
    registrations = together(server, "SELECT a FROM s WHERE d > :p AND a > :q", rows=typed(rows))
    assert [registration[0]["p"] for registration in registrations] == [
        repr(row["p"]) for row in rows
    ]
