"""A trial of a predicate: built from its stored text and probed, as the engine will do it.

What is in the log is read by every server and engine for ever, so a predicate that no caller wrote
as a query, such as a row policy with claims filled in, is tried before it is appended.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache

import numpy as np
import pyarrow as pa

from datastem.types import Kind, Type
from querystem.index.stem import QueryStem


def try_predicate(text: str, types: Mapping[str, Type]) -> None:
    """Build a predicate over columns of these types and match it with two rows, one of NULLs.
    Raise whatever fails."""
    stem = QueryStem()
    stem.insert_texts(np.zeros(1, np.int64), pa.array([text], pa.string()))
    names = sorted(stem.columns) or sorted(types)[:1]
    stem.probe(pa.RecordBatch.from_arrays([_sample(types[name]) for name in names], names=names))


_ZEROS: Mapping[Kind, object] = {
    Kind.BOOLEAN: False,
    Kind.DECIMAL: Decimal(0),
    Kind.DOUBLE: 0.0,
    Kind.TEXT: "",
}


@lru_cache(maxsize=1024)
def _sample(type_: Type) -> pa.Array:
    """Return a NULL, and a value that is zero or empty."""
    return pa.array([None, _ZEROS.get(type_.kind, 0)], type_.arrow)
