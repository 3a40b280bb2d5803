"""Set operations, and the values of queries inside expressions, over lists of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from datastem.types import BOOLEAN
from querystem.expressions import Call, ColumnRef, Scalar
from querystem.grouping import Grouping, aggregate_name
from querystem.sources import SetOperator, SubQuery, SubQueryKind, item_column
from tests.oracle.evaluator import evaluate_row
from tests.oracle.grouping import identity, naive_aggregate

Row = Mapping[str, Any]


def counted_rows(
    operator: SetOperator,
    names: Sequence[str],
    first_rows: Sequence[Row],
    second_rows: Sequence[Row],
) -> list[Row]:
    """Return the rows of a set operation other than UNION ALL, in no order; columns by position."""
    rows = [dict(zip(names, row.values(), strict=True)) for row in (*first_rows, *second_rows)]
    keys = [tuple(identity(value) for value in row.values()) for row in rows]
    first, second = Counter(keys[: len(first_rows)]), Counter(keys[len(first_rows) :])
    row_of_key = dict(reversed(list(zip(keys, rows, strict=True))))
    return [
        row
        for key, row in row_of_key.items()
        for _ in range(_copies(operator, first[key], second[key]))
    ]


def _copies(operator: SetOperator, first: int, second: int) -> int:
    match operator:
        case SetOperator.UNION:
            return 1
        case SetOperator.INTERSECT:
            return int(first > 0 and second > 0)
        case SetOperator.INTERSECT_ALL:
            return min(first, second)
        case SetOperator.EXCEPT:
            return int(first > 0 and second == 0)
        case SetOperator.EXCEPT_ALL:
            return max(0, first - second)
    raise AssertionError(operator)


def subquery_value(subquery: SubQuery, outer: Row, inner: Sequence[Row]) -> Scalar:
    """Return the value that a query, whose rows are `inner`, has for a combination."""
    outer_columns = {item_column(0, name): value for name, value in outer.items()}
    pairs = [
        outer_columns | {item_column(1, name): value for name, value in row.items()}
        for row in inner
    ]
    pairs = [pair for pair in pairs if evaluate_row(subquery.on, pair) is True]
    output = subquery.query.outputs[0]
    value = ColumnRef(item_column(1, output.name), output.expression.type)
    match subquery.kind:
        case SubQueryKind.EXISTS:
            return bool(pairs)
        case SubQueryKind.ANY:
            assert subquery.op is not None and subquery.operand is not None
            test = Call(subquery.op, (subquery.operand, value), BOOLEAN)
            truths = [evaluate_row(test, pair) for pair in pairs]
            return True if True in truths else None if None in truths else False
        case SubQueryKind.SCALAR if subquery.grouping is not None:
            assert subquery.value is not None
            return evaluate_row(subquery.value, _aggregated(subquery.grouping, pairs))
        case SubQueryKind.SCALAR:
            assert len(pairs) < 2, "a scalar query has at most one row"
            return pairs[0][value.name] if pairs else _of_nothing(subquery)


def _of_nothing(subquery: SubQuery) -> Scalar:
    grouping, output = subquery.query.grouping, subquery.query.outputs[0].expression
    if grouping is None:
        return None
    return evaluate_row(output, _aggregated(grouping, []))


def _aggregated(grouping: Grouping, rows: Sequence[Row]) -> Row:
    return {
        aggregate_name(number): naive_aggregate(aggregate, rows)
        for number, aggregate in enumerate(grouping.aggregates)
    }
