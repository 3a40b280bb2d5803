"""The windows and the REFRESH EVERY of a text: they follow the clauses of SQL, and are read once
every `:name` in them, a number or an instant, has its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

from sqlglot.tokenizer_core import Token, TokenType

from datastem.instants import format_instant, to_micros
from datastem.schema import StreamSchema
from querystem.expressions import Literal
from querystem.language.drafts import DraftWindow
from querystem.language.durations import read_duration
from querystem.language.errors import RefreshProblem, Span, TypeProblem
from querystem.language.scan import TokenReader, span_of
from querystem.language.window_checks import (
    check_clocks,
    check_over,
    check_retention,
    check_trigger,
    check_versions,
)
from querystem.language.windows import read_window
from querystem.query import Leg, Query
from querystem.refresh import RefreshEvery
from results.window import UNBOUNDED, Window


@dataclass(frozen=True, slots=True)
class WindowText:
    """The window of a reference to a stream, or over a query in FROM, as its tokens; there are none
    where it has no window. `place` is that of the reference. A window that is written WINDOW(…)
    ends at `end`, and may have a REFRESH EVERY, whose tokens are its `period`. A reference whose
    rows are looked up has none: they are for the rows of the one `beside` it, whose window has that
    number. A window inside a view is not in the text itself: the reference to the view is at
    `view`. Windows that have one number `together` have the points of their REFRESH together."""

    schema: StreamSchema
    tokens: Sequence[Token]
    place: Span
    end: int | None = None
    beside: int | None = None
    period: Sequence[Token] = ()
    view: Span | None = None
    together: int | None = None

    def read(self, end: int, literals: Mapping[str, Literal]) -> Window:
        """The window, in a text of length `end`; raises QueryError."""
        if self.end is not None:
            tokens = _filled(self.tokens, literals)
            return read_window(tokens, self.end, self.schema, of_item=True)
        if not self.tokens:
            return UNBOUNDED
        return read_window(_filled(self.tokens, literals), end, self.schema)

    def read_refresh(self, literals: Mapping[str, Literal]) -> RefreshEvery | None:
        """The REFRESH EVERY inside WINDOW(…) or of a view, where there is one; raises
        QueryError."""
        if not self.period:
            return None
        end = span_of(self.period[-1]).end if self.end is None else self.end
        return RefreshEvery(read_period(_filled(self.period, literals), end))


@dataclass(frozen=True, slots=True)
class Tail:
    """The windows of a text of length `end`, of its references to streams and over the queries in
    its FROM, and its REFRESH, which rows of the stream `trigger` may do; `names` says where their
    parameters stand."""

    windows: Sequence[WindowText]
    period: Sequence[Token]
    refresh: Span | None
    end: int
    names: Mapping[str, Span]
    trigger: StreamSchema | None = None

    @classmethod
    def of(
        cls,
        windows: Sequence[WindowText],
        period: Sequence[Token],
        refresh: Span | None,
        end: int,
        trigger: StreamSchema | None = None,
    ) -> Tail:
        names: dict[str, Span] = {}
        written = [tokens for text in windows for tokens in (text.tokens, text.period)]
        for tokens in [*written, period]:
            for colon, name in zip(tokens, tokens[1:], strict=False):
                if _is_parameter(colon, name):
                    names.setdefault(name.text, span_of(colon).to(span_of(name)))
        return cls(windows, period, refresh, end, names, trigger)

    def fill(self, query: Query, literals: Mapping[str, Literal]) -> Query:
        """The query with its windows and its period, given values for their parameters; raises
        QueryError."""
        if self.period:
            period = read_period(_filled(self.period, literals), self.end)
            query = replace(query, refresh=RefreshEvery(period))
        windows = [text.read(self.end, literals) for text in self.windows]
        points = [text.read_refresh(literals) for text in self.windows]
        legs = [_number(leg.window) for leg in query.legs]
        for number, (text, window) in enumerate(zip(self.windows, windows, strict=True)):
            if number not in legs:
                check_over(window, text.place)
            elif (span := self._span(text)) is not None:
                check_retention(window, text.schema, span, _behind(query.period, points[number]))
            if text.beside is not None:
                check_versions(windows[text.beside], text.schema, text.place)
        if any(points):
            query = query.with_legs(lambda leg: self._with_points(leg, points))
        query = with_windows(query, lambda draft: windows[_number(draft)])
        if len(windows) == 1:
            return _one_refresh(query)
        texts = [self.windows[number] for number in legs]
        check_clocks([text.schema for text in texts], query.moving, [one.place for one in texts])
        self._check_trigger(query, [text.schema for text in texts])
        return query

    def _with_points(self, leg: Leg, points: Sequence[RefreshEvery | None]) -> Leg:
        number = _number(leg.window)
        return replace(leg, refresh=points[number], together=self.windows[number].together)

    def _check_trigger(self, query: Query, schemas: Sequence[StreamSchema]) -> None:
        """Refuses rows with arrival time that refresh a query whose NOW is event time."""
        if self.trigger is None or self.refresh is None:
            return
        timed = [
            (moving, schema)
            for moving, schema in zip(query.moving, schemas, strict=True)
            if schema.ordered_by is not None
        ]
        moved = [schema for moving, schema in timed if moving or len(timed) == len(schemas)]
        for schema in moved:
            check_trigger(schema, self.trigger, self.refresh)

    def _span(self, text: WindowText) -> Span | None:
        """The place of a window with the REFRESH that sets it back."""
        if text.view is not None and text.tokens:
            return text.view
        spans = [span_of(token) for token in (text.tokens[:1] or ())]
        spans += [span_of(token) for token in text.tokens[-1:]]
        spans += [self.refresh] if self.refresh is not None else []
        if not spans:
            return None
        return spans[0].to(spans[-1])


def _number(window: Window) -> int:
    assert isinstance(window, DraftWindow), "windows are read once"
    return window.number


def _behind(period: int | None, refresh: RefreshEvery | None) -> int | None:
    """The period that sets a window back as much as the query's and the window's own together."""
    periods = [one for one in (period, refresh.period if refresh else None) if one is not None]
    return sum(periods) - len(periods) + 1 if periods else None


def _one_refresh(query: Query) -> Query:
    """The query over one leg with the leg's REFRESH as its own: both are of one stream."""
    if not isinstance(query.source, Leg) or query.refresh is not None:
        return query
    return replace(query, source=replace(query.leg, refresh=None), refresh=query.leg.refresh)


def with_windows(query: Query, change: Callable[[Window], Window]) -> Query:
    """The query with all its windows changed, those over inner queries too."""
    changed = query.with_parts(
        lambda leg: replace(leg, window=change(leg.window)),
        lambda inner: with_windows(inner, change),
    )
    return changed if query.over is None else replace(changed, over=change(query.over))


def _is_parameter(colon: Token, name: Token) -> bool:
    joined = colon.end + 1 == name.start
    return colon.text == ":" and name.token_type == TokenType.IDENTIFIER and joined


def _filled(tokens: Sequence[Token], literals: Mapping[str, Literal]) -> list[Token]:
    """The tokens with a constant in the place of each parameter."""
    filled: list[Token] = []
    for token in tokens:
        if filled and _is_parameter(filled[-1], token):
            filled.append(_constant(filled.pop(), token, literals[token.text]))
        else:
            filled.append(token)
    return filled


def _constant(colon: Token, name: Token, literal: Literal) -> Token:
    kind, text = TokenType.STRING, ""
    match literal.value:
        case bool() | None:
            raise _unfit(colon, name, literal, "it takes a number or an instant")
        case int() | float() | Decimal() as value:
            if not math.isfinite(value) or value < 0:
                raise _unfit(colon, name, literal, "it takes a number from 0")
            exact = Decimal(repr(value) if isinstance(value, float) else value)
            kind, text = TokenType.NUMBER, format(exact, "f")
        case datetime() as value:
            text = format_instant(to_micros(value))
        case date() as value:
            text = value.isoformat()
        case str() as value:
            text = value
    return Token(kind, text, colon.line, colon.col, colon.start, name.end)


def _unfit(colon: Token, name: Token, literal: Literal, hint: str) -> TypeProblem:
    shown = "NULL" if literal.value is None else str(literal.value)
    span = span_of(colon).to(span_of(name))
    return TypeProblem(
        f":{name.text} is {shown}, which no window takes", span, hint=hint, reason="BAD_VALUE"
    )


_LAST = "REFRESH stands last, after the window"


def read_period(tokens: Sequence[Token], end: int) -> int:
    """The period of REFRESH EVERY, in microseconds."""
    reader = TokenReader(tokens, end)
    span = reader.span
    period = read_duration(reader)
    reader.finish(hint=_LAST)
    if period == 0:
        raise RefreshProblem(
            "REFRESH EVERY 0 has no points", span, hint="without REFRESH the answer is always fresh"
        )
    return period
