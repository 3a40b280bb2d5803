"""Columns compared with lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psoup.store.state.columns import (
    GrowingColumn,
    HandleColumn,
    InternedColumn,
    NumberColumn,
    TextColumn,
)
from psoup.store.state.sparse import SparseColumn

texts = st.sampled_from(["", "a", "b", "ä\U0001f600", "x" * 50]) | st.text(max_size=5)
KINDS: dict[str, Any] = {
    "numbers": (NumberColumn, st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "sparse": (SparseColumn, st.sampled_from([0, 0, 1, 2**63 - 1]), pa.int64()),
    "texts": (TextColumn, texts, pa.string()),
    "interned": (InternedColumn, texts, pa.string()),
    "handles": (HandleColumn, st.binary(min_size=16, max_size=16), pa.binary()),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_column_is_a_list(kind: str, data) -> None:
    make, value, type_ = KINDS[kind]
    column: GrowingColumn = make()
    model: list[Any] = []
    for step in data.draw(st.lists(st.sampled_from(["append", "extend", "keep"]), max_size=12)):
        if step == "append":
            model.append(data.draw(value))
            column.append(model[-1])
        elif step == "extend":
            new = data.draw(st.lists(value, max_size=20))
            cut = data.draw(st.integers(0, len(new)))
            column.extend(_arrow(new, cut, type_, data.draw(st.integers(0, 2))))
            model += new[cut:]
        else:
            keep = data.draw(st.sets(st.integers(0, max(0, len(model) - 1))))
            rows = sorted(row for row in keep if row < len(model))
            column.keep(np.array(rows, np.int64))
            model = [model[row] for row in rows]
        assert [column[row] for row in range(len(model))] == model
    rows = data.draw(st.lists(st.integers(0, max(0, len(model) - 1)), max_size=9))
    rows = rows if model else []
    assert column.take(np.array(rows, np.int64)).to_pylist() == [model[row] for row in rows]
    if isinstance(column, InternedColumn):
        codes = dict(zip(column.codes.tolist(), model, strict=True))
        assert len(set(codes.values())) == len(codes)
        assert all(column.code_of(text) == code for code, text in codes.items())
        assert column.code_of("never seen") == -1


def _arrow(values: list[Any], cut: int, type_: pa.DataType, form: int) -> Any:
    """Return the values from `cut` on as a slice, in chunks, or (texts) from a dictionary."""
    array = pa.array(values, type_).slice(cut)
    if form == 1:
        half = len(array) // 2
        return pa.chunked_array([array.slice(0, half), array.slice(half)], type_)
    if form == 2 and pa.types.is_string(type_):
        return array.dictionary_encode().cast(type_)
    return array


def test_an_empty_sparse_column_takes_no_memory() -> None:
    assert SparseColumn().nbytes == 0
