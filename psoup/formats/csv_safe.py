"""CSV without formulas: a text that begins like a formula stays a text in a spreadsheet."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

# What begins a formula, also as wide characters. Spreadsheets may drop leading white space.
_FORMULA = "^[=+\\-@\t\r\n＝＋－＠]"


def formula_safe(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with an apostrophe before every TEXT, and every name, that begins like a
    formula.
    """
    arrays = [_safe(array) if pa.types.is_string(array.type) else array for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=formula_safe_schema(batch.schema))


def formula_safe_schema(schema: pa.Schema) -> pa.Schema:
    names = _safe(pa.array(schema.names, pa.string())).to_pylist()
    return pa.schema(
        [field.with_name(name) for field, name in zip(schema, names, strict=True)], schema.metadata
    )


def _safe(texts: pa.Array) -> pa.Array:
    marked = pc.binary_join_element_wise("'", texts, "")
    return pc.if_else(pc.match_substring_regex(texts, _FORMULA), marked, texts)
