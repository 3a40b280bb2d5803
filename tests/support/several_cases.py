"""One random query over several streams, answered three times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import duckdb
import pytest

from datastem.schema import StreamSchema
from querystem.language import QueryError, bind_query
from tests.oracle.clocks import MixedClocks, clocks
from tests.oracle.comparing import difference
from tests.oracle.several.chance import Chance
from tests.oracle.several.drawing import written
from tests.oracle.several.duck import duck_difference
from tests.oracle.several.texts import Whole, our_text, placed
from tests.oracle.several.worlds import CLOCK, LAST, world
from tests.oracle.trees import World
from tests.support.several import pure_answer


@dataclass(frozen=True)
class Case:
    """A query over the streams of a world, asked now and as of another instant."""

    world: World
    whole: Whole
    as_of: int

    @property
    def schemas(self) -> Mapping[str, StreamSchema]:
        return {name: stream.schema for name, stream in self.world.streams.items()}

    @property
    def sql(self) -> str:
        return our_text(self.whole)

    def __repr__(self) -> str:
        streams = [
            f"{stream.schema} reached {stream.reached}:\n  " + "\n  ".join(map(str, stream.rows))
            for stream in self.world.streams.values()
        ]
        return "\n".join(["", self.sql, f"as of {self.as_of}", *streams])


def drawn_case(chance: Chance) -> Case:
    drawn = world(chance)
    schemas = [stream.schema for stream in drawn.streams.values()]
    return Case(drawn, written(chance, schemas), chance.number(0, LAST) * CLOCK // LAST)


def check(case: Case, duck: duckdb.DuckDBPyConnection) -> None:
    """Oracle, vectorised parts and DuckDB agree; what is refused is refused for its clocks."""
    if is_mixed(case):
        with pytest.raises(QueryError):
            bind_query(case.sql, case.schemas.get)
        return
    query = bind_query(case.sql, case.schemas.get)
    for variant in (case.world, replace(case.world, as_of=case.as_of)):
        expected = variant.answer(query)
        problem = difference(expected, pure_answer(query, variant), case.whole.ordered)
        assert not problem, f"pure: {problem}\n{case}"
        if case.whole.exact:
            whole = variant.answer(replace(query, limit=None, offset=0))
            problem = duck_difference(duck, case.whole, variant, whole)
            assert not problem, f"DuckDB: {problem}\n{case}"


def is_mixed(case: Case) -> bool:
    """Return whether event time and arrival time can't go together in a case."""
    try:
        clocks(
            [place.awaited for place in placed(case.whole)], case.world.streams, case.world.clock
        )
    except MixedClocks:
        return True
    return False
