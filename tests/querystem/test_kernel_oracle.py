"""The kernel equals the oracle, for random expressions over random rows."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from datastem.schema import StreamSchema
from querystem.expressions import Expression, from_json, to_json
from querystem.kernel import evaluate, matches
from tests.oracle import evaluate_row
from tests.oracle.expressions import conditions, expressions
from tests.oracle.strategies import rows, schemas, to_batch, types

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def same(first: Any, second: Any) -> bool:
    """Equal and of one type; NaN is NaN, and -0.0 is 0.0."""
    if isinstance(first, float) and isinstance(second, float) and math.isnan(first):
        return math.isnan(second)
    return type(first) is type(second) and bool(first == second)


def check(expression: Expression, schema: StreamSchema, drawn_rows: list[dict[str, Any]]) -> None:
    got = evaluate(expression, to_batch(schema, drawn_rows))
    assert got.type == expression.type.arrow
    got.validate(full=True)
    for value, row in zip(got.to_pylist(), drawn_rows, strict=True):
        expected = evaluate_row(expression, row)
        assert same(value, expected), (value, expected, row)


@settings(max_examples=3 * settings().max_examples, suppress_health_check=_SLOW)
@given(st.data())
def test_oracle_values(data: DataObject) -> None:
    schema = data.draw(schemas())
    drawn_rows = data.draw(rows(schema))
    for type_ in [*[column.type for column in schema.columns], data.draw(types())]:
        check(data.draw(expressions(schema.types, type_)), schema, drawn_rows)


@settings(max_examples=3 * settings().max_examples, suppress_health_check=_SLOW)
@given(st.data())
def test_oracle_conditions(data: DataObject) -> None:
    schema = data.draw(schemas())
    drawn_rows = data.draw(rows(schema))
    batch = to_batch(schema, drawn_rows)
    for _ in range(4):
        where = data.draw(conditions(schema.types))
        check(where, schema, drawn_rows)
        expected = [evaluate_row(where, row) is True for row in drawn_rows]
        assert matches(where, batch).tolist() == expected
        assert matches(from_json(to_json(where)), batch).tolist() == expected
