"""docs/reference/functions.md is the table of functions, and every example on it is computed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from datastem.schema import Column, StreamSchema
from datastem.types import TEXT
from querystem.kernel import evaluate
from querystem.language import bind_query
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
