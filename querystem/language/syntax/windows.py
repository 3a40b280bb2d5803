"""The window clause: a text becomes a `Window`.

`BEGIN x END y` includes both ends. A `Window` is half-open: one is added to its end here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot.tokenizer_core import Token, TokenType

from datastem.instants import to_micros
from datastem.schema import StreamSchema
from querystem.language.errors import (
    NotYet,
    Span,
    SyntaxProblem,
    TypeProblem,
    UnknownColumn,
    WindowProblem,
    located,
)
from querystem.language.syntax.calendar_windows import read_during
from querystem.language.syntax.window_checks import (
    check_clocks,
    check_of_view,
    check_over,
    check_retention,
    check_validities,
    check_versions,
)
from querystem.language.tokens.durations import read_duration
from querystem.language.tokens.literals import TIMESTAMP_FORM, read_timestamp
from querystem.language.tokens.names import nearest, suggest
from querystem.language.tokens.scan import MAX_WINDOW, TokenReader, check_length, scan, span_of
from querystem.query import Query
from querystem.validity import PRESENT
from results.window import (
    UNBOUNDED,
    Bound,
    CountWindow,
    RowWindow,
    TimeWindow,
    Window,
)

MAX_ROWS = 2**31
MAX_ROW_ID = 2**62

_KINDS = "write BEGIN … END …, RANGE duration, DURING TODAY, ROWS number, or UNBOUNDED"
_BEGINNINGS = ("BEGIN", "RANGE", "DURING", "ROWS", "UNBOUNDED")
_ENDS = "write 'YYYY-MM-DD HH:MM', NOW - 1 HOUR, ROW 1000 or ROW LAST - 99"
_ROWS = "write ROWS 100 or ROWS 100 SLIDE 10, then PARTITION BY column; RANGE takes a duration"
_ONE_MEASURE = "write ROW at both ends, or an instant at both"


def bind_window(
    text: str, schemas: StreamSchema | Sequence[StreamSchema], period: int | None = None
) -> Window:
    """Return the window that an invoke brings, for a query that is refreshed every `period`.

    `schemas` are those of the references without a window of their own; it must suit them all.
    Raise QueryError, also if the window reaches past a stream's retention.
    """
    several = [schemas] if isinstance(schemas, StreamSchema) else schemas
    with located(text):
        check_length(text, MAX_WINDOW, hint="a window alone is never as long")
        tokens = scan(text)
        span = span_of(tokens[0]).to(span_of(tokens[-1]))
        if not several:
            raise WindowProblem(
                "every stream of the query has a window of its own",
                span,
                hint="ask without a window, or register another query",
            )
        windows = [read_window(tokens, len(text), schema) for schema in several]
        for schema in several:
            check_retention(windows[0], schema, span, period)
        return windows[0]


def bring_window(
    text: str, query: Query, schemas: Sequence[StreamSchema], period: int | None
) -> Query:
    """Return the query with the window that an invoke brings; `schemas` are those of its legs'
    streams.

    Raise QueryError as `bind_window` does, if the window mixes event and arrival time, and if rows
    are looked up for older rows than their stream keeps.
    """
    legs = [(leg, s) for leg, s in zip(query.legs, schemas, strict=True) if not leg.has_own_window]
    views = [StreamSchema(item.view, item.columns) for item in query.opened]
    window = bind_window(text, [*(schema for _, schema in legs), *views], period)
    span, brought = Span(0, len(text)), query.with_window(window)
    with located(text):
        check_validities(brought, span)
        for item in query.opened:
            check_over(window, span)
            if not isinstance(item.over, CountWindow):
                check_of_view(window, item.view, span)
        for leg, schema in legs:
            check_of_view(window, leg.view, span, bool(schema.key))
        check_clocks(schemas, brought.moving, [span] * len(schemas))
        for leg, schema in zip(query.legs, schemas, strict=True):
            if leg.as_of is not None:
                check_versions(window, schema, span, period)
    return brought


def default_window(schema: StreamSchema) -> Window:
    """Return the window of a reference to a stream that has none."""
    return UNBOUNDED if schema.validity is None else PRESENT


def read_window(
    tokens: Sequence[Token], end: int, schema: StreamSchema, of_item: bool = False
) -> Window:
    """Return the window of these tokens, of a text that ends at `end`. The window of an item of
    FROM is written WINDOW(…), in which more is allowed."""
    reader = TokenReader(tokens, end)
    if of_item:
        return _item_window(reader, schema)
    window = _window(reader, schema)
    _refuse_option(reader)
    if any(reader.sees(word) for word in _FROM_GOES_ON):
        window_text = _consumed_text(reader)
        raise SyntaxProblem(
            "a window ends a query, and is that of all its streams",
            reader.span,
            hint=f"a window of one stream is written after its name: WINDOW({window_text})",
        )
    reader.finish(hint="a window stands at the end of the query")
    return window


def _consumed_text(reader: TokenReader) -> str:
    """Return the text of the tokens that were read."""
    quote = {TokenType.STRING: "'", TokenType.IDENTIFIER: '"'}
    quotes = [quote.get(token.token_type, "") for token in reader.consumed]
    pairs = zip(quotes, reader.consumed, strict=True)
    return " ".join(f"{q}{token.text}{q}" for q, token in pairs)


_FROM_GOES_ON = (",", "JOIN", "INNER", "LEFT", "CROSS", "ON")


def _item_window(reader: TokenReader, schema: StreamSchema) -> Window:
    """Return a window inside WINDOW(…): PARTITION BY may stand first, NOW and UNBOUNDED are
    windows."""
    partition = _columns(reader, schema) if reader.take("PARTITION BY") else ()
    span = reader.span
    window = _item_frame(reader, schema)
    if partition:
        if not isinstance(window, CountWindow) or window.partition_by:
            raise WindowProblem(
                "PARTITION BY goes with ROWS number, once", span, hint=_OPTIONS["PARTITION BY"]
            )
        window = replace(window, partition_by=partition)
    _refuse_option(reader)
    reader.finish(hint=_KINDS)
    return window


def _item_frame(reader: TokenReader, schema: StreamSchema) -> Window:
    if reader.take("NOW"):
        return TimeWindow(Bound(0, True))
    if reader.take("RANGE", "UNBOUNDED") or reader.take("ROWS", "UNBOUNDED"):
        return UNBOUNDED
    return _window(reader, schema)


def _window(reader: TokenReader, schema: StreamSchema) -> Window:
    span = reader.span
    if schema.validity is not None:
        _check_valid(reader, schema)
    if reader.take("BEGIN"):
        return _begin_end(reader, span, ahead=schema.validity is not None)
    if reader.take("RANGE"):
        return _range(reader, span)
    if reader.take("DURING"):
        return read_during(reader)
    if reader.take("ROWS"):
        return _rows(reader, schema)
    if reader.take("UNBOUNDED"):
        return UNBOUNDED
    near = nearest(reader.token.text.upper(), _BEGINNINGS) if reader.token else None
    reader.fail("expected a window", hint=f"did you mean {near}?" if near else _KINDS)


def _check_valid(reader: TokenReader, schema: StreamSchema) -> None:
    """Refuse windows that can't hold rows by their validity yet."""
    assert schema.validity is not None
    starts = schema.label(schema.validity.starts)
    for words, hint in (
        (("ROWS",), f"write ORDER BY {starts} DESC LIMIT number"),
        (("BEGIN", "ROW"), "compare row_id in WHERE"),
    ):
        if reader.sees(*words):
            raise NotYet(
                f"{' '.join(words)} over {schema.name}, whose rows have a validity",
                reader.span,
                hint=hint,
            )


def _begin_end(reader: TokenReader, span: Span, ahead: bool) -> Window:
    """Return the window after BEGIN; its ends may lie `ahead` of NOW."""
    begin, by_row = _bound(reader, "BEGIN", ahead)
    reader.need("END", hint="a window has both: BEGIN … END …")
    end_span = reader.span
    end, by_row_too = _bound(reader, "END", ahead)
    if by_row != by_row_too:
        raise WindowProblem(
            "the window begins by time and ends by row" if by_row_too
            else "the window begins by row and ends by time",
            end_span,
            hint=_ONE_MEASURE,
        )  # fmt: skip
    if begin.relative == end.relative and begin.offset > end.offset:
        raise WindowProblem(
            "the window begins after it ends, so it is always empty",
            span.to(reader.span),
            hint="swap the two",
        )
    past = Bound(end.offset + 1, end.relative)
    if by_row:
        return RowWindow(begin, past)
    return TimeWindow(begin, None if end == Bound(0, True) else past)


def _bound(reader: TokenReader, side: str, ahead: bool) -> tuple[Bound, bool]:
    """Return the first or last point of a window, and whether it is a row."""
    if reader.take("ROW"):
        return _row(reader, side), True
    if reader.take("NOW"):
        if ahead and reader.take("+"):
            return Bound(read_duration(reader), True), False
        return _back(reader, side, "NOW"), False
    _refuse_parameter(reader)
    return _instant(reader, side), False


def _instant(reader: TokenReader, side: str) -> Bound:
    span = reader.span
    reader.take("TIMESTAMP")
    token = reader.take_kind(TokenType.STRING)
    if token is None:
        reader.fail(f"expected an instant after {side}", hint=_ENDS)
    try:
        return Bound(to_micros(read_timestamp(token.text)), False)
    except ValueError as problem:
        raise TypeProblem(str(problem), span, hint=TIMESTAMP_FORM, reason="BAD_LITERAL") from None


def _row(reader: TokenReader, side: str) -> Bound:
    if reader.take("LAST"):
        return _back(reader, side, "ROW LAST")
    return Bound(_number(reader, f"{side} ROW", 0, MAX_ROW_ID, hint=_ENDS), False)


def _back(reader: TokenReader, side: str, present: str) -> Bound:
    """Return the bound after NOW or ROW LAST: that point itself, or one before it."""
    span = reader.span
    if reader.sees("+"):
        raise WindowProblem(
            f"{side} may not lie in the future of {present}",
            span,
            hint=f"write {side} {present} or {side} {present} - {_BEFORE[present]}",
        )
    if reader.sees("("):
        raise SyntaxProblem(
            f"{present.split()[-1]} is not a function", span, hint="write it without parentheses"
        )
    if not reader.take("-"):
        return Bound(0, True)
    if present == "NOW":
        return Bound(-read_duration(reader), True)
    return Bound(-_number(reader, "ROW LAST -", 0, MAX_ROW_ID), True)


_BEFORE = {"NOW": "duration; rows after NOW wait for it", "ROW LAST": "number"}


def _range(reader: TokenReader, span: Span) -> Window:
    _refuse_parameter(reader)
    width = read_duration(reader)
    if width == 0:
        raise WindowProblem(
            "RANGE 0 is always empty", span, hint="BEGIN NOW END NOW is one instant"
        )
    begin = Bound(1 - width, True)
    slide_span = reader.take("SLIDE")
    if slide_span is None:
        return TimeWindow(begin)
    _refuse_parameter(reader)
    slide = read_duration(reader)
    if slide == 0:
        raise WindowProblem(
            "SLIDE 0 never moves", slide_span, hint="without SLIDE the window moves with NOW"
        )
    return TimeWindow(begin, None, slide)


def _rows(reader: TokenReader, schema: StreamSchema) -> Window:
    rows = _number(reader, "ROWS", 1, MAX_ROWS, hint=_ROWS)
    slide_span = reader.span
    slide = _number(reader, "SLIDE", 1, MAX_ROWS, hint=_ROWS) if reader.take("SLIDE") else None
    if slide is not None and schema.key:
        raise NotYet(
            "SLIDE by rows over a keyed stream",
            slide_span,
            hint=f"write ROWS {rows}: the newest of the current rows; or RANGE duration SLIDE"
            " duration, the current rows as of the last whole step",
        )
    if not reader.take("PARTITION BY"):
        if reader.token is not None and not reader.sees("REFRESH"):
            reader.unexpected(hint=_ROWS)
        return CountWindow(rows, slide)
    return CountWindow(rows, slide, _columns(reader, schema))


def _columns(reader: TokenReader, schema: StreamSchema) -> tuple[str, ...]:
    labels = schema.labels
    names: list[str] = []
    while True:
        label, span = reader.need_name("a column after PARTITION BY")
        if label not in labels:
            raise UnknownColumn(
                f"there is no column {label} in {schema.name} to partition by",
                span,
                hint=schema.renaming(label) or suggest(label, labels),
            )
        name = labels[label]
        if name in names:
            raise WindowProblem(
                f"PARTITION BY has {label} twice", span, hint="leave the second one out"
            )
        names.append(name)
        if not reader.take(","):
            return tuple(names)


def _number(reader: TokenReader, after: str, least: int, most: int, hint: str = "") -> int:
    _refuse_parameter(reader)
    token, span = reader.token, reader.span
    if token is None or token.token_type != TokenType.NUMBER:
        reader.fail(f"expected a number after {after}", hint=hint)
    reader.skip()
    plain = token.text.isascii() and token.text.isdigit() and len(token.text) < 40
    number = int(token.text) if plain else None
    if number is None or not least <= number <= most:
        raise WindowProblem(
            f"{after} takes a whole number from {least} to {most:,}, not {token.text[:60]}", span
        )
    return number


def _refuse_parameter(reader: TokenReader) -> None:
    if reader.sees(":"):
        raise SyntaxProblem(
            "a parameter has a value only in the query itself", reader.span, hint="write the value"
        )


def _refuse_option(reader: TokenReader) -> None:
    for word, hint in _OPTIONS.items():
        if reader.sees(word):
            raise SyntaxProblem(f"this window takes no {word}", reader.span, hint=hint)


_OPTIONS = {
    "SLIDE": "SLIDE follows RANGE duration or ROWS number, before PARTITION BY",
    "PARTITION BY": "PARTITION BY follows ROWS number",
    "REFRESH": "it belongs to the query; ask for the unrefreshed answer, or register another",
}
