"""Views as a client sees them: made, named in queries, and ended with what they are over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk import (
    AsyncClient,
    Client,
    Conflict,
    Copies,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    PsoupError,
    QueryProblem,
)
from psoup.access.principal import ANYONE
from psoup.answers import Question
from psoup.answers.planning.question import BoundText
from psoup.server.wire.copies import CopySubject
from psoup.store import Position
from querystem.language import bring_window
from tests.querystem.language.support import STREAMS as STREAMS_OF_VIEWS
from tests.querystem.language.test_views import CATALOG
from tests.support.server.process import ServerProcess

pytestmark = pytest.mark.process

STREAMS = (
    "CREATE STREAM trades (symbol TEXT, price DOUBLE, size BIGINT)",
    "CREATE STREAM names (symbol TEXT, name TEXT) KEY (symbol)",
)
VIEWS = (
    "CREATE VIEW big AS SELECT symbol, price FROM trades WHERE size > 10",
    "CREATE STREAMED VIEW dear AS SELECT symbol, price FROM big WHERE price > 100",
    "CREATE STREAM named AS SELECT b.symbol, b.price, n.name FROM big AS b, names AS n"
    " WHERE b.symbol = n.symbol",
)
TRADES = [
    {"symbol": "IBM", "price": 184.5, "size": 20},
    {"symbol": "SUN", "price": 12.0, "size": 30},
    {"symbol": "IBM", "price": 190.0, "size": 5},
]


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.address, tenant=server.tenant) as client_:
        for sql in (*STREAMS, *VIEWS):
            client_.define(sql)
        client_.publish("trades", TRADES)
        client_.publish("names", [{"symbol": "IBM", "name": "Big Blue"}])
        yield client_


def reason(problem: pytest.ExceptionInfo[PsoupError]) -> str:
    return problem.value.reason


def test_views_are_listed_with_what_they_are_over(client: Client) -> None:
    views = {view.name: view for view in client.views()}
    assert {name: view.over for name, view in views.items()} == {
        "big": ("trades",),
        "dear": ("big", "trades"),
        "named": ("big", "names", "trades"),
    }
    assert [view.sql for view in views.values()] == [*VIEWS[:2], VIEWS[2].replace("STREAM", "VIEW")]
    assert [(described.name, described.type) for described in views["dear"].columns] == [
        ("symbol", "TEXT"),
        ("price", "DOUBLE"),
    ]
    assert views["dear"].schema.names == ["symbol", "price"]
    assert [stream.name for stream in client.streams()] == ["names", "trades"]
    ids = {
        *(described.id for described in client.streams()),
        *(described.id for described in views.values()),
    }
    assert len(ids) == 5, "views and streams have numbers of one kind"


def test_a_query_over_views_shares_the_predicate_of_the_one_written_out(client: Client) -> None:
    through = client.register("SELECT symbol FROM dear WHERE symbol = 'IBM'")
    plain = client.register(
        "SELECT symbol FROM trades WHERE size > 10 AND price > 100 AND symbol = 'IBM'"
    )
    assert client.invoke(through).rows == client.invoke(plain).rows == [{"symbol": "IBM"}]
    registrations = {registration.handle: registration for registration in client.registrations()}
    assert (
        registrations[through.handle].views == ("dear", "big")
        and registrations[plain.handle].views == ()
    )
    explained = client.explain(through)
    assert explained.views == ("dear", "big") and explained.registration_count == 2
    assert [registration.name for registration in _operators(explained.operator)] == [
        "select",
        "view",
        "stream",
    ]


def _operators(operator: Any) -> Iterator[Any]:
    yield operator
    for child in operator.inputs:
        yield from _operators(child)


def test_explain_shows_where_views_stand(client: Client) -> None:
    handle = client.register("SELECT a.name FROM named AS a, named AS b WHERE a.price < b.price")
    operators = [
        (operator.name, operator.detail) for operator in _operators(client.explain(handle).operator)
    ]
    assert operators.count(("view", "named")) == 2 and operators.count(("view", "big")) == 2
    assert client.invoke(handle).rows == []


def test_windows_of_a_query_and_those_that_are_brought_bound_a_view(client: Client) -> None:
    for sql in ("SELECT price FROM big", "SELECT price FROM named"):
        handle = client.register(sql)
        count = len(client.invoke(handle))
        assert count and len(client.invoke(handle, window="RANGE 1 HOUR")) == count
        assert client.invoke(handle, window="BEGIN '2020-01-01' END '2020-01-02'").rows == []
        assert len(client.ask(f"{sql} ROWS 1")) == 1
        with pytest.raises(PsoupError) as caught:
            client.invoke(handle, window="ROWS 1")
        assert reason(caught) == "NOT_YET"


def test_a_copy_with_another_window_over_a_view_is_another_copy() -> None:
    """Windows over a view are no windows of its legs."""
    query = CATALOG.bind("SELECT symbol FROM recent")
    schemas = [STREAMS_OF_VIEWS[leg.stream] for leg in query.legs]
    subjects = {
        CopySubject.of(b"", Position(1, 0), Question(BoundText((1,)), bound, ANYONE))
        for text in ("RANGE 5 MINUTES", "RANGE 6 MINUTES")
        for bound in (query, bring_window(text, query, schemas, None))
    }
    assert len(subjects) == 3


def test_another_query_goes_through_other_views(client: Client) -> None:
    first = client.register("SELECT symbol FROM dear", key="mine")
    again = client.register("SELECT symbol FROM named", key="mine", replace=True)
    assert again.handle == first.handle
    assert [registration.views for registration in client.registrations()] == [("named", "big")]
    client.define("DROP VIEW dear")
    assert client.invoke(first).rows == [{"symbol": "IBM"}]


async def test_views_for_programs_that_wait_for_others(
    client: Client, server: ServerProcess
) -> None:
    async with AsyncClient(server.address, tenant=server.tenant) as async_client:
        assert await async_client.views() == client.views()


def test_many_are_registered_through_a_view(client: Client) -> None:
    sql = "SELECT price FROM big WHERE symbol = :which"
    handles = client.register_many(sql, [{"which": "IBM"}, {"which": "SUN"}]).handles
    assert [client.invoke(registered).rows for registered in handles] == [
        [{"price": 184.5}],
        [{"price": 12.0}],
    ]
    assert {registered.views for registered in client.registrations()} == {("big",)}
    client.define("DROP VIEW big CASCADE")
    for handle in handles:
        with pytest.raises(PreconditionFailed, match="view big was dropped"):
            client.invoke(handle)


# ---- what is refused


def test_names_are_those_of_streams_and_views_together(client: Client) -> None:
    for sql in ("CREATE VIEW trades AS SELECT name FROM names", "CREATE STREAM big (a BIGINT)"):
        with pytest.raises(Conflict) as caught:
            client.define(sql)
        assert reason(caught) == "STREAM_EXISTS"


def test_nothing_is_published_into_a_view(client: Client) -> None:
    for call in (
        lambda: client.publish("big", [{"symbol": "X", "price": 1.0}]),
        lambda: client.stream("big"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            call()
        assert reason(caught) == "NOT_A_STREAM"


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("DROP STREAM trades", "big, dear, named"),
        ("DROP STREAM names", "named"),
        ("DROP VIEW big", "dear, named"),
    ],
)
def test_what_a_view_names_is_not_dropped(client: Client, sql: str, named: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        client.define(sql)
    assert reason(caught) == "NAMED_BY_VIEWS" and caught.value.message.endswith(f"by {named}")
    assert len(client.views()) == 3


def test_a_view_is_refused_as_its_query_is(client: Client) -> None:
    with pytest.raises(QueryProblem) as caught:
        client.define("CREATE VIEW v AS\nSELECT prise FROM big")
    assert reason(caught) == "UNKNOWN_COLUMN"
    assert caught.value.detail is not None and caught.value.detail.line == 2
    with pytest.raises(NotFound) as missing:
        client.define("DROP VIEW trades")
    assert "DROP STREAM" in str(missing.value.detail)


# ---- the end of views


def test_cascade_ends_views_and_their_registrations(client: Client) -> None:
    handles = {
        name: client.register(f"SELECT symbol FROM {name}").handle
        for name in ("trades", "names", "big", "dear", "named")
    }
    with Copies.in_memory() as copies:
        copies.keep("dear", "SELECT symbol FROM dear")
        assert copies.sync(client).complete
        dropped = client.define("DROP VIEW big CASCADE").view
        assert dropped.name == "big" and client.views() == []
        for name in ("big", "dear", "named"):
            for call in (client.invoke, client.explain):
                with pytest.raises(PreconditionFailed) as caught:
                    call(handles[name])
                assert reason(caught) == "STREAM_DROPPED"
        for name in ("trades", "names"):
            assert client.invoke(handles[name]).rows
        assert copies.sync(client)["dear"].status == "refused"
    client.define("CREATE VIEW big AS SELECT symbol FROM names")
    with pytest.raises(PreconditionFailed, match="was dropped"):
        client.invoke(handles["big"])
    assert client.ask("SELECT symbol FROM big").rows == [{"symbol": "IBM"}]
    client.unregister(handles["big"])


def test_a_view_made_as_a_stream_is_dropped_as_one(client: Client) -> None:
    assert client.define("DROP STREAM named").view.name == "named"
    client.define("DROP STREAM trades CASCADE")
    assert client.views() == [] and [stream.name for stream in client.streams()] == ["names"]


def test_another_server_knows_them_from_the_log(tmp_path: Path) -> None:
    first = ServerProcess(tmp_path / "store", "--durability", "none")
    try:
        with Client(first.address) as client:
            for sql in (*STREAMS, *VIEWS):
                client.define(sql)
            client.publish("trades", TRADES)
            handle = client.register("SELECT symbol FROM dear").handle
            client.define("DROP VIEW named")
    finally:
        first.stop()
    second = ServerProcess(tmp_path / "store", "--durability", "none")
    try:
        with Client(second.address) as client:
            assert [view.name for view in client.views()] == ["big", "dear"]
            assert client.invoke(handle).rows == [{"symbol": "IBM"}]
            assert client.ask("SELECT count(*) AS n FROM big").rows == [{"n": 2}]
    finally:
        second.stop()
