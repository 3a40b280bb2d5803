"""The windows and the REFRESH EVERY of a text: they follow the clauses of SQL, and are read once
every `:name` in them, a number or an instant, has its value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

from sqlglot.tokenizer_core import Token, TokenType

from datastem.instants import format_instant, to_micros
from datastem.schema import StreamSchema
from querystem.expressions import Literal
from querystem.language.durations import read_duration
from querystem.language.errors import RefreshProblem, Span, TypeProblem
from querystem.language.scan import TokenReader, span_of
from querystem.language.window_checks import check_clocks, check_over, check_retention
from querystem.language.windows import read_window
from querystem.query import From, Item, LeftJoin, Leg, Query, SetOperation
from querystem.refresh import RefreshEvery
from results.window import UNBOUNDED, Window


@dataclass(frozen=True, slots=True)
class WindowText:
    """The window of a reference to a stream, or over a query in FROM, as its tokens; there are none
    where it has no window. `place` is that of the reference. A window that is written WINDOW(…)
    ends at `end`."""

    schema: StreamSchema
    tokens: Sequence[Token]
    place: Span
    end: int | None = None

    def read(self, end: int, literals: Mapping[str, Literal]) -> Window:
        """The window, in a text of length `end`; raises QueryError."""
        if self.end is not None:
            tokens = _filled(self.tokens, literals)
            return read_window(tokens, self.end, self.schema, of_item=True)
        if not self.tokens:
            return UNBOUNDED
        return read_window(_filled(self.tokens, literals), end, self.schema)


@dataclass(frozen=True, slots=True)
class Tail:
    """The windows of a text of length `end`, of its `legs` and over the queries in its FROM, and
    its REFRESH; `names` says where their parameters stand."""

    legs: Sequence[WindowText]
    overs: Sequence[WindowText]
    period: Sequence[Token]
    refresh: Span | None
    end: int
    names: Mapping[str, Span]

    @classmethod
    def of(
        cls,
        legs: Sequence[WindowText],
        overs: Sequence[WindowText],
        period: Sequence[Token],
        refresh: Span | None,
        end: int,
    ) -> Tail:
        names: dict[str, Span] = {}
        for tokens in [*(text.tokens for text in (*legs, *overs)), period]:
            for colon, name in zip(tokens, tokens[1:], strict=False):
                if _is_parameter(colon, name):
                    names.setdefault(name.text, span_of(colon).to(span_of(name)))
        return cls(legs, overs, period, refresh, end, names)

    def fill(self, query: Query, literals: Mapping[str, Literal]) -> Query:
        """The query with its windows and its period, given values for their parameters; raises
        QueryError."""
        windows = [text.read(self.end, literals) for text in self.legs]
        if self.period:
            period = read_period(_filled(self.period, literals), self.end)
            query = replace(query, refresh=RefreshEvery(period))
        for text, window in zip(self.legs, windows, strict=True):
            if (span := self._span(text)) is not None:
                check_retention(window, text.schema, span, query.period)
        if any(window != UNBOUNDED for window in windows):
            ahead = iter(windows)
            query = query.with_legs(lambda leg: replace(leg, window=next(ahead)))
        if len(windows) == 1 and not self.overs:
            return query
        overs = [text.read(self.end, literals) for text in self.overs]
        for text, window in zip(self.overs, overs, strict=True):
            check_over(window, text.place)
        query = _with_overs(query, iter(overs))
        places = [text.place for text in self.legs]
        check_clocks([text.schema for text in self.legs], query.moving, places)
        return query

    def _span(self, text: WindowText) -> Span | None:
        """The place of a window with the REFRESH that sets it back."""
        spans = [span_of(token) for token in (text.tokens[:1] or ())]
        spans += [span_of(token) for token in text.tokens[-1:]]
        spans += [self.refresh] if self.refresh is not None else []
        if not spans:
            return None
        return spans[0].to(spans[-1])


def _with_overs(query: Query, windows: Iterator[Window]) -> Query:
    """The query with the windows over its inner queries; those inside a query come before its
    own."""
    if isinstance(query.source, From):
        query = replace(query, source=_from_with_overs(query.source, windows))
    return query if query.over is None else replace(query, over=next(windows))


def _from_with_overs(source: From, windows: Iterator[Window]) -> From:
    items = tuple(_item_with_overs(item, windows) for item in source.items)
    subqueries = tuple(
        replace(one, query=_with_overs(one.query, windows)) for one in source.subqueries
    )
    return replace(source, items=items, subqueries=subqueries)


def _item_with_overs(item: Item, windows: Iterator[Window]) -> Item:
    match item:
        case Leg():
            return item
        case Query():
            return _with_overs(item, windows)
        case SetOperation(_, queries):
            return replace(item, queries=tuple(_with_overs(one, windows) for one in queries))
        case LeftJoin(left, right):
            left = _from_with_overs(left, windows)
            return replace(item, left=left, right=_item_with_overs(right, windows))


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
