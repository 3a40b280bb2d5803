"""The window clause: text to `Window`, and back.

`BEGIN x END y` includes both ends; inside, a window is half-open. The microsecond is added here.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from datastem.instants import format_instant, to_micros
from datastem.schema import StreamSchema
from querystem.language.durations import UNITS, read_duration, write_duration
from querystem.language.errors import (
    NotYet,
    Span,
    SyntaxProblem,
    TypeProblem,
    WindowProblem,
    located,
)
from querystem.language.moments import TIMESTAMP_FORM, read_timestamp
from querystem.language.scan import Reader, scan, span_of
from results.window import UNBOUNDED, Bound, Window

# At the end of a query the first of these, outside parentheses, begins the window.
WINDOW_WORDS = frozenset({"BEGIN", "RANGE", "ROWS", "UNBOUNDED", "REFRESH", "SLIDE"})

_LARGER = 2 * max(UNITS.values())
_KINDS = "write BEGIN … END …, RANGE duration, or UNBOUNDED"


def bind_window(text: str, schema: StreamSchema) -> Window:
    """The window an invoke brings. Raises QueryError."""
    with located(text):
        return read_window(scan(text), len(text), schema)


def read_window(tokens: Sequence[Token], end: int, schema: StreamSchema) -> Window:
    """Raises WindowProblem where the window reaches past the stream's retention."""
    reader = Reader(tokens, end)
    span = reader.span
    if reader.take("BEGIN"):
        window = _begin_end(reader, span)
    elif reader.take("RANGE"):
        window = _range(reader, span)
    elif reader.take("UNBOUNDED"):
        window = UNBOUNDED
    elif reader.sees("ROWS"):
        raise NotYet("ROWS windows", reader.span, hint=_KINDS)
    elif reader.sees("REFRESH"):
        window = UNBOUNDED
    else:
        reader.fail("expected a window", hint=_KINDS)
    _refuse_later(reader)
    reader.finish(hint="a window stands at the end of the query")
    check_retention(window, schema, span_of(tokens[0]).to(span_of(tokens[-1])))
    return window


def check_retention(window: Window, schema: StreamSchema, span: Span | None) -> None:
    """A row is retained while ts > NOW - RETAIN. A constant that has aged past it is no error."""
    if schema.retain is None:
        return
    begin, end = window.begin, window.end
    oldest = begin.offset if begin and begin.relative else 0
    newest = end.offset - 1 if end and end.relative else 0
    if min(oldest, newest) > -schema.retain:
        return
    limit = write_duration(schema.retain)
    raise WindowProblem(
        f"the window reaches past the retention: {schema.name} keeps a row for {limit}",
        span,
        hint=f"RANGE {limit} is the longest; BEGIN NOW - x needs x shorter than {limit}, because"
        " its first instant belongs to the window",
        reason="WINDOW_PAST_RETENTION",
    )


def window_text(window: Window) -> str:
    """The clause in normal form; binding it again gives the same window."""
    if window == UNBOUNDED:
        return "UNBOUNDED"
    begin, end = window.begin, window.end
    if begin and begin.relative and end is None and _reads_as_range(begin.offset):
        return f"RANGE {write_duration(1 - begin.offset)}"
    last = Bound(0, True) if end is None else Bound(end.offset - 1, end.relative)
    first = "'0001-01-01 00:00:00'" if begin is None else _bound_text(begin)
    return f"BEGIN {first} END {_bound_text(last)}"


def _begin_end(reader: Reader, span: Span) -> Window:
    begin = _bound(reader, "BEGIN")
    reader.need("END", hint="a window has both: BEGIN … END …")
    end = _bound(reader, "END")
    span = span.to(reader.span)
    if begin.relative == end.relative and begin.offset > end.offset:
        raise WindowProblem(
            "the window begins after it ends, so it is always empty", span, hint="swap the two"
        )
    if end == Bound(0, True):
        return Window(begin, None)
    return Window(begin, Bound(end.offset + 1, end.relative))


def _bound(reader: Reader, side: str) -> Bound:
    span = reader.span
    if reader.take("NOW"):
        return _relative(reader, side)
    if reader.sees("ROW"):
        raise NotYet("windows over the row counter", span, hint=_KINDS)
    if reader.sees(":"):
        raise NotYet("a parameter in a window", span, hint="write the window out; it is not shared")
    reader.take("TIMESTAMP")
    token = reader.take_kind(TokenType.STRING)
    if token is None:
        reader.fail(
            f"expected an instant after {side}", hint="write 'YYYY-MM-DD HH:MM' or NOW - 1 HOUR"
        )
    try:
        return Bound(to_micros(read_timestamp(token.text)), False)
    except ValueError as problem:
        raise TypeProblem(str(problem), span, hint=TIMESTAMP_FORM, reason="BAD_LITERAL") from None


def _relative(reader: Reader, side: str) -> Bound:
    span = reader.span
    if reader.sees("+"):
        raise WindowProblem(
            f"{side} may not lie in the future of NOW",
            span,
            hint=f"write {side} NOW or {side} NOW - duration; rows after NOW wait for it",
        )
    if reader.sees("("):
        raise SyntaxProblem("NOW is not a function", span, hint="write NOW without parentheses")
    if not reader.take("-"):
        return Bound(0, True)
    return Bound(-read_duration(reader), True)


def _range(reader: Reader, span: Span) -> Window:
    width = read_duration(reader)
    if width == 0:
        raise WindowProblem(
            "RANGE 0 is always empty", span, hint="BEGIN NOW END NOW is one instant"
        )
    return Window(Bound(1 - width, True), None)


def _refuse_later(reader: Reader) -> None:
    for word, hint in _LATER.items():
        if reader.sees(word):
            raise NotYet(word, reader.span, hint=hint)


_LATER = {
    "SLIDE": "without SLIDE the window moves with NOW",
    "REFRESH": "without REFRESH the answer is as fresh as the log",
    "PARTITION BY": "",
}


def _reads_as_range(offset: int) -> bool:
    return offset <= 0 and _unit_size(1 - offset) > _unit_size(-offset)


def _unit_size(micros: int) -> int:
    return max(size for size in UNITS.values() if micros % size == 0) if micros else _LARGER


def _bound_text(bound: Bound) -> str:
    if not bound.relative:
        return f"'{format_instant(bound.offset)}'"
    return f"NOW - {write_duration(-bound.offset)}" if bound.offset else "NOW"
