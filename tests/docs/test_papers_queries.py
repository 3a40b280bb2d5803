"""docs/explanation/papers-queries.md: every query is bound; oracle and kernel agree on it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from datastem.instants import SECOND, from_micros
from datastem.schema import StreamSchema
from datastem.types import BIGINT
from querystem.language import bind_query
from tests.docs.test_language import catalog_of, statements
from tests.oracle.clocks import Known
from tests.oracle.comparing import difference, in_any_order
from tests.oracle.trees import World
from tests.support.docs.markdown import blocks, read
from tests.support.several import pure_answer

PAGE = read("docs/explanation/papers-queries.md")
CATALOG = catalog_of(PAGE)
SCHEMAS = CATALOG.schemas
QUERIES = [
    text for block in blocks(PAGE, "sql") for text in statements(block.text) if "CREATE" not in text
]
LAST = 12


def row_of(schema: StreamSchema, number: int, chance: random.Random) -> dict[str, Any]:
    """A row a second, of few values."""
    moment = number * SECOND
    row: dict[str, Any] = {
        column.name: chance.choice([1, 2, 3] if column.type == BIGINT else ["ftp", "x", "JOE DOE"])
        for column in schema.columns
    }
    row |= {"at": from_micros(moment), "ts": moment, "row_id": number}
    return row | ({"_op": chance.choice(["row", "row", "delete"])} if schema.key else {})


def world(seed: int) -> World:
    chance = random.Random(seed)
    return World(
        {
            name: Known(schema, [row_of(schema, n, chance) for n in range(LAST)], LAST * SECOND)
            for name, schema in SCHEMAS.items()
        }
    )


@pytest.mark.parametrize("text", QUERIES)
def test_every_query_is_answered(text: str) -> None:
    query = bind_query(text, CATALOG.lookup)
    answers = 0
    for seed in range(5):
        for at in range(0, LAST, 3):
            queries = World(world(seed).streams, as_of=at * SECOND)
            expected, answer = queries.answer(query), pure_answer(query, queries)
            assert not difference(in_any_order(expected), in_any_order(answer))
            answers += len(expected)
    assert answers
