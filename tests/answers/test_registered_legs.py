"""Questions about registrations of several legs, made and answered without a server's calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastem.instants import HOUR
from datastem.memory import Memory
from datastem.types import BIGINT, BOOLEAN, DOUBLE
from psoup.access.principal import ANYONE
from psoup.answers import AnswerMaker, Question, Replica, View
from psoup.answers.planning.question import RegisteredQuery, read_texts, texts_of
from psoup.errors import StreamDropped
from psoup.server.core import Core
from psoup.store import Store
from psoup.write.registrations import Prepared, RegisterAll
from psoup.write.streams import Drop
from querystem.expressions import Call, ColumnRef, Literal, Op
from querystem.legs import Leg
from querystem.query import Output, Query
from querystem.sources import From, item_column
from results.window import UNBOUNDED
from tests.answers.test_without_server import NOW, define, fill, running

# Cars that are faster than 60 beside the place that has their lane's number.
QUERY = Query(
    From(
        (
            Leg(
                "cars",
                Call(Op.GT, (ColumnRef("speed", DOUBLE), Literal(60.0, DOUBLE)), BOOLEAN),
                UNBOUNDED,
            ),
            Leg("parked", Literal(True, BOOLEAN), UNBOUNDED),
        ),
        Call(
            Op.EQ,
            (ColumnRef(item_column(0, "lane"), BIGINT), ColumnRef(item_column(1, "place"), BIGINT)),
            BOOLEAN,
        ),
    ),
    (Output("speed", ColumnRef(item_column(0, "speed"), DOUBLE)),),
)


async def register(core: Core) -> RegisteredQuery:
    ready = [Prepared("", "{}", QUERY)]
    streams = {"cars": 1, "parked": 2}
    registered = await core.appender.submit(
        RegisterAll("main", "main", streams, "a text", HOUR, ready),
    )
    return RegisteredQuery("main", registered.handles[0])


def answer(path: Path, source: RegisteredQuery) -> int:
    """The number of rows of a registration's answer, from the store's folder alone."""
    store = Store.open(path)
    replica, maker = Replica.open(store, Memory(1 << 20)), AnswerMaker(store)
    query = read_texts(maker.memo, texts_of(replica.state, source, "", False))
    assert query == QUERY
    return maker.answer(View.at(replica, NOW), Question(source, query, ANYONE)).row_count


@pytest.mark.usefixtures("counted_ids")
@pytest.mark.parametrize("dropped", ["cars", "parked"])
async def test_the_leg_whose_stream_has_gone_is_named(dropped: str, tmp_path: Path) -> None:
    async with running(tmp_path / "store") as core:
        await define(core)
        await fill(core, 0)
        source = await register(core)
        fast = sum(40 + n % 31 > 60 for n in range(40))
        assert answer(tmp_path / "store", source) == fast
        await core.appender.submit(Drop("main", "main", dropped))
        with pytest.raises(StreamDropped, match=f"stream {dropped} was dropped"):
            answer(tmp_path / "store", source)
