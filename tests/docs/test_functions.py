"""docs/reference/functions.md is the table of functions, and every example on it is computed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, TEXT
from querystem.evaluate import answer_at
from querystem.kernel import evaluate
from querystem.language import bind_query
from querystem.language.functions.aggregates import AGGREGATES, SAMPLE
from querystem.language.functions.page import page
from querystem.language.functions.table import FUNCTIONS
from querystem.zones import with_zones
from tests.docs.test_language import value_text
from tests.oracle.zoned import machine_zones_of
from tests.support.docs.markdown import read

_ROWS = pa.record_batch({"door": ["a"]})
_DOORS = StreamSchema("doors", (Column("door", TEXT),))


def test_the_page_is_the_table() -> None:
    assert read("docs/reference/functions.md") == page()


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_example_is_computed(name: str) -> None:
    function = FUNCTIONS[name]
    assert function.example.startswith(f"{name}(") and function.written.startswith(f"{name}(")
    query = bind_query(f"SELECT {function.example} AS x FROM doors", {"doors": _DOORS}.get)
    query = with_zones(query, machine_zones_of())
    value = evaluate(query.outputs[0].expression, _ROWS)[0].as_py()
    assert value_text(value) == function.value


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_every_example_of_an_aggregate_is_computed(name: str) -> None:
    rule, samples = AGGREGATES[name], StreamSchema("samples", (Column("x", BIGINT),))
    numbers = pa.array(range(len(SAMPLE)))
    columns = {"ts": numbers.cast(pa.timestamp("us", "UTC")), "row_id": numbers}
    rows = pa.record_batch({"x": pa.array(SAMPLE, pa.int64()), **columns})
    example = rule.example or f"{name}(x)"
    query = bind_query(f"SELECT {example} AS v FROM samples", {"samples": samples}.get)
    ((value,),) = (row.values() for row in answer_at(query, [rows], 9).to_pylist())
    assert value_text(value) == rule.value
