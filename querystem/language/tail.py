"""What follows the clauses of SQL: the window and REFRESH EVERY, where `:name` may be a number or
an instant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

from sqlglot.tokenizer_core import Token, TokenType

from datastem.instants import format_instant, to_micros
from datastem.schema import StreamSchema
from querystem.expressions import Literal
from querystem.language.errors import Span, TypeProblem
from querystem.language.parse import Parsed
from querystem.language.refreshing import read_period
from querystem.language.scan import span_of
from querystem.language.windows import check_retention, read_window
from querystem.query import Query, RefreshEvery


@dataclass(frozen=True, slots=True)
class Tail:
    """`parsed` is of a text of length `end` over `schema`; `names` says where parameters stand."""

    parsed: Parsed
    end: int
    schema: StreamSchema
    names: Mapping[str, Span]

    @classmethod
    def of(cls, parsed: Parsed, end: int, schema: StreamSchema) -> Tail:
        names: dict[str, Span] = {}
        for tokens in _parts(parsed):
            for colon, name in zip(tokens, tokens[1:], strict=False):
                if _is_parameter(colon, name):
                    names.setdefault(name.text, span_of(colon).to(span_of(name)))
        return cls(parsed, end, schema, names)

    def fill(self, query: Query, literals: Mapping[str, Literal]) -> Query:
        """The query with its window and its period. Raises QueryError."""
        window, period = (_filled(tokens, literals) for tokens in _parts(self.parsed))
        if window:
            query = replace(query, window=read_window(window, self.end, self.schema))
        if period:
            query = replace(query, refresh=RefreshEvery(read_period(period, self.end)))
        if tail := self.parsed.tail:
            span = span_of(tail[0]).to(span_of(tail[-1]))
            check_retention(query.window, self.schema, span, query.period)
        return query


def _parts(parsed: Parsed) -> tuple[Sequence[Token], Sequence[Token]]:
    return parsed.window, parsed.refresh.period if parsed.refresh else ()


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
