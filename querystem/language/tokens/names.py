"""Names of streams and columns, and the names of types."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from itertools import islice

from datastem.types import COLUMN_KINDS, Kind, Type, decimal_type
from querystem.language.errors import BindProblem, Span, TypeProblem

MAX_NAME = 64
# A misspelled name is compared with at most this many names, to suggest one.
_MAX_COMPARED_NAMES = 2000


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A name spelled like one of these must be written in double quotes.
RESERVED = words(
    """
    all and any as between by case cast cross distinct div else end escape except exists false from
    full group having ilike in inner intersect interval is join left like limit not null offset on
    or order outer over right select then true union using when where with
    begin during now range refresh rows slide unbounded window
    """
)

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def read_name(text: str, span: Span, quoted: bool) -> str:
    """Return the name that a text is, in lower case; raise BindProblem if it is no name."""
    name = text if quoted else text.lower()
    if not quoted and name in RESERVED:
        raise BindProblem(
            f"{text} is a word of the language, not a name",
            span,
            hint=f'to use it as a name, write "{name}" in double quotes',
        )
    if not _NAME.fullmatch(name):
        raise BindProblem(
            f"{text!r} is not a name",
            span,
            hint="a name begins with a letter a-z, then letters, digits and _; all lower case",
        )
    if len(name) > MAX_NAME:
        raise BindProblem(
            f"the name has {len(name)} characters", span, hint=f"names have at most {MAX_NAME}"
        )
    return name


# Words that may follow a number of seconds and are no unit of time.
_AFTER_DURATION = words("SLIDE REFRESH RETAIN AHEAD LEAD ORDERED KEY ASC DESC NULLS")


def is_unit_like(text: str) -> bool:
    """Return whether a word after a number must be its unit."""
    return text.upper() not in _AFTER_DURATION


def write_name(name: str) -> str:
    return f'"{name}"' if name in RESERVED else name


def nearest(name: str, candidates: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the name in `candidates` that `name` may be a misspelling of, if any. Only the first
    2,000 candidates are compared."""
    if len(name) > MAX_NAME:
        return None
    compared = sorted(islice(candidates, _MAX_COMPARED_NAMES))
    return next(iter(difflib.get_close_matches(name, compared, 1, likeness)), None)


def suggest(name: str, candidates: Iterable[str]) -> str:
    """Return a hint with the nearest candidate, or with the first twenty."""
    names = sorted(candidates)
    if near := nearest(name, names):
        return f"did you mean {near}?"
    return "known are " + ", ".join(names[:20]) + (", …" if len(names) > 20 else "")


_TYPE = re.compile(
    r"([a-z_][a-z0-9_]*)\s*(?:\(\s*(\d{1,4})\s*(?:,\s*(\d{1,4})\s*)?\))?", re.IGNORECASE
)
_ALL_TYPES = "the types are BOOLEAN, BIGINT, DOUBLE, DECIMAL(p,s), TEXT, TIMESTAMP, DATE"
_TYPES = frozenset(kind.value for kind in COLUMN_KINDS)
_DURATIONS = dict.fromkeys(
    ("INTERVAL", "DURATION"),
    "durations stand in expressions only; extract(second FROM duration) is a DOUBLE",
)
# Spellings of other systems that mean the same here; a statement that uses one gets a note.
SYNONYMS = {
    "VARCHAR": Type(Kind.TEXT),
    "INTEGER": Type(Kind.BIGINT),
    "REAL": Type(Kind.DOUBLE),
    "DOUBLE PRECISION": Type(Kind.DOUBLE),
}
_FOREIGN_TYPES = {
    "BIGINT": "integer int smallint tinyint int2 int4 int8 int16 int32 int64 long serial",
    "DOUBLE": "real float float4 float8 float64 double_precision",
    "DECIMAL(p,s)": "numeric number dec money",
    "TEXT": "varchar char string character nvarchar str clob json uuid",
    "BOOLEAN": "bool bit",
    "TIMESTAMP": "datetime timestamptz time timestamp_ntz timestamp_ltz",
}
_OURS = {
    foreign: ours for ours, spellings in _FOREIGN_TYPES.items() for foreign in spellings.split()
}


def read_type(text: str, span: Span) -> Type:
    """Return the type that a text stands for; raise TypeProblem, with the type to write instead."""
    match = _TYPE.fullmatch(text.strip())
    name = (match[1] if match else text.partition("(")[0].strip()).upper()
    synonym = SYNONYMS.get(type_words(text))
    if synonym is not None:
        return synonym
    if match and name == Kind.DECIMAL.value:
        return _decimal(match[2], match[3], span)
    if match and name in _TYPES and match[2] is None:
        return Type(Kind[name])
    ours = name if name in _TYPES else _OURS.get(name.lower(), "")
    hint = f"write {ours}" if ours else _DURATIONS.get(name, _ALL_TYPES)
    raise TypeProblem(
        f"{' '.join(text.split())[:60]} is not a type", span, hint=hint, reason="BAD_TYPE"
    )


def type_words(text: str) -> str:
    """Return the name of a type as SYNONYMS has it: upper case, one blank between words."""
    return " ".join(text.upper().split())


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
