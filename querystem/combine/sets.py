"""Set operations on the rows of queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.equality import canonical, codes
from datastem.instants import SINCE_EVER
from datastem.schema import Column
from querystem.combine.rows import ItemRows
from querystem.sources import SetOperation, SetOperator
from results.checksum import key_ids
from results.masking import masked

# How many copies of a value there are, given how many the first and the second query have.
_COPIES: Mapping[SetOperator, Callable[[Int64s, Int64s], Int64s]] = {
    SetOperator.UNION: lambda first, second: np.ones_like(first),
    SetOperator.INTERSECT_ALL: np.minimum,
    SetOperator.INTERSECT: lambda first, second: ((first > 0) & (second > 0)).astype(np.int64),
    SetOperator.EXCEPT_ALL: lambda first, second: np.maximum(first - second, 0),
    SetOperator.EXCEPT: lambda first, second: ((first > 0) & (second == 0)).astype(np.int64),
}


def united(operation: SetOperation, branches: Sequence[ItemRows], mask: bytes = b"") -> ItemRows:
    """Return the rows of a set operation, from those of its queries.

    UNION ALL keeps the rows, each named by its branch and its parts there. The other operations
    make new rows from values, named by the values and the number of the copy; such a name is masked
    with `mask`, if there is one.
    """
    columns = _columns(operation, branches)
    if operation.operator is SetOperator.UNION_ALL:
        return _appended(columns, branches)
    counted = _COPIES[operation.operator]
    rows = _counted(operation.columns, columns, len(branches[0]), counted)
    return ItemRows(rows.columns, rows.ts, tuple(masked(part, mask) for part in rows.parts))


def _columns(operation: SetOperation, branches: Sequence[ItemRows]) -> dict[str, pa.Array]:
    """Return the columns of all branches, one branch after another, named as those of the first
    query."""
    names = [[column.name for column in query.columns] for query in operation.queries]
    columns = {}
    # The operation has a column `ts` only if all branches have it.
    if all("ts" in branch.columns for branch in branches):
        columns["ts"] = pa.concat_arrays([branch.columns["ts"] for branch in branches])
    for same in zip(*names, strict=True):
        parts = [branch.columns[name] for branch, name in zip(branches, same, strict=True)]
        columns[same[0]] = pa.concat_arrays(parts)
    return columns


def _appended(columns: Mapping[str, pa.Array], branches: Sequence[ItemRows]) -> ItemRows:
    # The branch number is the first part, so rows of one ts are ordered by branch, then by their
    # parts.
    numbers = np.repeat(np.arange(len(branches)), [len(branch) for branch in branches])
    ts = np.concatenate([branch.ts for branch in branches])
    parts = _padded([branch.parts for branch in branches])
    return ItemRows(columns, ts, (numbers, *parts))


def _padded(branches: Sequence[tuple[Int64s, ...]]) -> list[Int64s]:
    """Return the parts of several branches, one branch after another; −1 for parts that a branch
    does not have."""
    width = max(map(len, branches))
    rows = [
        [*numbers, *[np.full(len(numbers[0]), -1)] * (width - len(numbers))] for numbers in branches
    ]
    return [np.concatenate(same) for same in zip(*rows, strict=True)]


def _counted(
    outputs: Sequence[Column],
    columns: Mapping[str, pa.Array],
    first: int,
    copies: Callable[[Int64s, Int64s], Int64s],
) -> ItemRows:
    """Return the rows of two queries by their values; the first query has `first` of them."""
    values = [columns[column.name] for column in outputs]
    # code[r] is the number of row r's value, over the rows of both queries; firsts[c] is the first
    # row with value c. `counts` has the rows per value for each query.
    code, firsts = codes([canonical(value) for value in values], len(values[0]))
    counts = [np.bincount(part, minlength=len(firsts)) for part in (code[:first], code[first:])]
    # For each distinct value: how many copies of it the result has, and its first row.
    all_counts = copies(counts[0].astype(np.int64), counts[1].astype(np.int64))
    in_result = np.flatnonzero(all_counts)
    count = all_counts[in_result]
    places = np.repeat(firsts[in_result], count)
    result = {c.name: v.take(pa.array(places)) for c, v in zip(outputs, values, strict=True)}
    # copy[k] counts the equal rows before row k: 0, 1, … within each value. It makes ids of equal
    # rows different.
    copy = np.arange(len(places)) - np.repeat(np.cumsum(count) - count, count)
    keys = [canonical(value) for value in result.values()]
    ids = key_ids([*keys, pa.array(copy)], len(places))
    return ItemRows(result, np.full(len(places), SINCE_EVER), (ids,))
