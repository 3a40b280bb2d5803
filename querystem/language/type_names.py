"""Types as SQL writes them."""

from __future__ import annotations

import re

from datastem.types import Kind, Type, decimal_type
from querystem.language.errors import Span, TypeProblem

_TYPE = re.compile(
    r"([a-z_][a-z0-9_]*)\s*(?:\(\s*(\d{1,4})\s*(?:,\s*(\d{1,4})\s*)?\))?", re.IGNORECASE
)
_SEVEN = "the types are BOOLEAN, BIGINT, DOUBLE, DECIMAL(p,s), TEXT, TIMESTAMP, DATE"
_INSTEAD = {
    "BIGINT": "int integer smallint tinyint int2 int4 int8 int16 int32 int64 long serial",
    "DOUBLE": "float real float4 float8 float64 double_precision",
    "DECIMAL(p,s)": "numeric number dec money",
    "TEXT": "varchar char string character nvarchar str clob json uuid",
    "BOOLEAN": "bool bit",
    "TIMESTAMP": "datetime timestamptz time timestamp_ntz timestamp_ltz",
}
_OURS = {other: ours for ours, others in _INSTEAD.items() for other in others.split()}


def read_type(text: str, span: Span) -> Type:
    """Raises TypeProblem, with the type to write instead."""
    match = _TYPE.fullmatch(text.strip())
    name = (match[1] if match else text.partition("(")[0].strip()).upper()
    if match and name == Kind.DECIMAL.value:
        return _decimal(match[2], match[3], span)
    if match and name in Kind.__members__ and match[2] is None:
        return Type(Kind[name])
    ours = name if name in Kind.__members__ else _OURS.get(name.lower(), "")
    hint = f"write {ours}" if ours else _SEVEN
    raise TypeProblem(
        f"{' '.join(text.split())[:60]} is not a type", span, hint=hint, reason="BAD_TYPE"
    )


def _decimal(precision: str | None, scale: str | None, span: Span) -> Type:
    if precision is None:
        raise TypeProblem(
            "DECIMAL needs a precision and a scale",
            span,
            hint="write DECIMAL(10,2)",
            reason="BAD_TYPE",
        )
    try:
        return decimal_type(int(precision), int(scale or 0))
    except ValueError as problem:
        raise TypeProblem(str(problem), span, reason="BAD_TYPE") from None
