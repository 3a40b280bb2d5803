"""Ask: the answer of a query that nobody registered, and what is shared with those that are."""

from __future__ import annotations

import grpc
import pyarrow as pa
import pytest

from psoup.answers.caches import UnregisteredIds
from psoup.v1 import psoup_pb2 as pb
from tests.support.server.process import ServerProcess, detail

NUMBERS = pa.table({"a": range(100), "b": ["even", "odd"] * 50})


@pytest.fixture
def numbers(server: ServerProcess) -> ServerProcess:
    server.define("CREATE STREAM numbers (a BIGINT, b TEXT)")
    server.publish("numbers", NUMBERS)
    return server


@pytest.mark.process
def test_what_was_computed_is_used_again(numbers: ServerProcess) -> None:
    header, first = numbers.ask("SELECT a FROM numbers WHERE a > 90")
    assert first["a"].to_pylist() == list(range(91, 100))
    assert header.computed_rows == 100
    again, same = numbers.ask("SELECT count(*) AS n FROM numbers WHERE a > 90")
    assert (again.computed_rows, same["n"].to_pylist()) == (0, [9])
    numbers.publish("numbers", NUMBERS)
    more, twice = numbers.ask("SELECT count(*) AS n FROM numbers WHERE a > 90")
    assert (more.computed_rows, twice["n"].to_pylist()) == (100, [18])


@pytest.mark.process
def test_matches_are_shared_with_a_registration(numbers: ServerProcess) -> None:
    sql = "SELECT a FROM numbers WHERE b = 'odd'"
    handle = numbers.register(sql).handle
    assert numbers.invoke(handle)[0].computed_rows == 100
    assert numbers.ask(sql)[0].computed_rows == 0
    numbers.stub.Unregister(pb.UnregisterRequest(tenant=numbers.tenant, handle=handle))
    header, answer = numbers.ask(sql)
    assert (header.computed_rows, answer.num_rows) == (100, 50)


@pytest.mark.process
def test_nothing_is_written(numbers: ServerProcess) -> None:
    before = numbers.stub.Status(pb.StatusRequest())
    numbers.ask("SELECT a FROM numbers WHERE a < :most", parameters={"most": pb.Value(bigint=3)})
    after = numbers.stub.Status(pb.StatusRequest())
    assert (before.position, before.registration_count) == (
        after.position,
        after.registration_count,
    )


@pytest.mark.process
@pytest.mark.parametrize(
    ("fields", "code", "reason", "message"),
    [
        ({"sql": "SELECT a FROM numberz"}, "NOT_FOUND", "UNKNOWN_STREAM", "numbers"),
        ({"sql": "SELECT aa FROM numbers"}, "INVALID_ARGUMENT", "UNKNOWN_COLUMN", "column 8"),
        ({"sql": "SELECT a FROM numbers", "tenant": "x"}, "NOT_FOUND", "UNKNOWN_STREAM", ""),
        ({"sql": "x" * 70_000}, "INVALID_ARGUMENT", "TEXT_TOO_LONG", "65,536"),
        ({"sql": "SELECT a FROM numbers WHERE a = :x"}, "INVALID_ARGUMENT", "UNKNOWN_PARAMETER",
         ":x"),
        ({"sql": "SELECT a FROM numbers", "encoding": 9}, "INVALID_ARGUMENT", "BAD_REQUEST", ""),
        ({"sql": "SELECT a FROM numbers", "least_position": b"x"}, "INVALID_ARGUMENT",
         "FOREIGN_POSITION", ""),
    ],
)  # fmt: skip
def test_refusals(
    numbers: ServerProcess, fields: dict[str, object], code: str, reason: str, message: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(numbers.stub.Ask(pb.AskRequest(**{"tenant": numbers.tenant, **fields})))  # type: ignore[arg-type]
    assert (caught.value.code().name, detail(caught.value).reason) == (code, reason)
    assert message in str(caught.value.details())


@pytest.mark.process
def test_a_misspelled_stream_is_met_with_the_nearest(numbers: ServerProcess) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        numbers.register("SELECT a FROM numberz")
    assert "did you mean numbers?" in str(caught.value.details())


def test_ids_are_negative_and_never_used_again() -> None:
    ids = UnregisteredIds(capacity=2)
    first, second = ids.id_of(1, "a"), ids.id_of(2, "a")
    assert ids.id_of(1, "a") == first
    third = ids.id_of(1, "b")
    forgotten = ids.id_of(2, "a")
    assert len({first, second, third, forgotten}) == 4
    assert max(first, second, third, forgotten) < 0
