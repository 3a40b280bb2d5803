"""The REFRESH clause: text to `Refresh`, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from datastem.schema import StreamSchema
from querystem.expressions import TRUE
from querystem.language.bind import Binder
from querystem.language.clauses import AFTER_FROM, ORDER, outside
from querystem.language.durations import read_duration, write_duration
from querystem.language.errors import RefreshProblem, Span, SyntaxProblem
from querystem.language.expression_texts import expression_text
from querystem.language.later import refuse_later
from querystem.language.scan import Reader, span_of
from querystem.language.sources import Lookup, Names, bind_condition, bind_stream
from querystem.language.windows import WINDOW_WORDS
from querystem.language.words import nearest, write_name
from querystem.query import Refresh, RefreshEvery, RefreshOn

_KINDS = "write REFRESH EVERY 5 MINUTES or REFRESH ON stream WHERE condition"
_LAST = "REFRESH stands last, after the window"


@dataclass(frozen=True, slots=True)
class ParsedRefresh:
    """`period` is what follows EVERY; else `rows` is what follows ON, as a query of its own."""

    span: Span
    period: Sequence[Token]
    rows: exp.Select | None


def parse_refresh(
    tokens: Sequence[Token], end: int, parse: Callable[[list[Token]], exp.Select]
) -> ParsedRefresh | None:
    """`tokens` are those from REFRESH on, if there are any; `parse` is that of a SELECT."""
    if not tokens:
        return None
    reader = Reader(tokens, end)
    reader.need("REFRESH")
    span = span_of(tokens[0]).to(span_of(tokens[-1]))
    if reader.take("EVERY"):
        if reader.token is None:
            reader.fail("expected a duration", hint=_KINDS)
        return ParsedRefresh(span, tokens[2:], None)
    if reader.take("ON"):
        if reader.token is None:
            reader.fail("expected a stream", hint=_KINDS)
        return ParsedRefresh(span, (), _rows(tokens, parse))
    near = nearest(reader.token.text.upper(), ("EVERY", "ON")) if reader.token else None
    reader.fail("expected EVERY or ON after REFRESH", f"did you mean {near}?" if near else _KINDS)


def bind_trigger(
    parsed: ParsedRefresh | None,
    schema: StreamSchema,
    binder: Binder,
    lookup: Lookup,
    names: Names | None,
) -> RefreshOn | None:
    """REFRESH ON, of the query whose `schema` and `binder` these are."""
    if parsed is None or parsed.rows is None:
        return None
    rows, alias = bind_stream(parsed.rows, lookup, names)
    if schema.ordered_by is not None and rows.ordered_by is None:
        raise RefreshProblem(
            f"{schema.name} has event time and {rows.name} arrival time: their clocks can't be"
            " compared",
            parsed.span,
            hint="REFRESH ON a stream with ORDERED BY, or REFRESH EVERY duration",
        )
    own = replace(binder, types=rows.types, stream=alias, clause="REFRESH ON", outputs=())
    return RefreshOn(rows.name, bind_condition(parsed.rows.args.get("where"), own))


def refresh_text(refresh: Refresh | None) -> str:
    """The clause in normal form; empty where there is none."""
    match refresh:
        case None:
            return ""
        case RefreshEvery(period):
            return f"REFRESH EVERY {write_duration(period)}"
        case RefreshOn(stream, where):
            condition = "" if where == TRUE else f" WHERE {expression_text(where)}"
            return f"REFRESH ON {write_name(stream)}{condition}"


def read_period(tokens: Sequence[Token], end: int) -> int:
    """That of REFRESH EVERY, in microseconds."""
    reader = Reader(tokens, end)
    span = reader.span
    period = read_duration(reader)
    reader.finish(hint=_LAST)
    if period == 0:
        raise RefreshProblem(
            "REFRESH EVERY 0 has no points", span, hint="without REFRESH the answer is always fresh"
        )
    return period


def _rows(tokens: Sequence[Token], parse: Callable[[list[Token]], exp.Select]) -> exp.Select:
    """What follows REFRESH ON, as a query of its own."""
    for _, token in outside(tokens, 2):
        if token.token_type == TokenType.VAR and token.text.upper() in WINDOW_WORDS:
            raise SyntaxProblem(f"{token.text} after REFRESH", span_of(token), hint=_LAST)
        if token.token_type in AFTER_FROM and token.token_type != TokenType.WHERE:
            raise SyntaxProblem(
                f"REFRESH ON takes a stream and WHERE, no {token.text.upper()}",
                span_of(token),
                hint=f"the order is {ORDER}",
            )
    first, on = tokens[:2]
    query = [
        _spelled(first, TokenType.SELECT, "SELECT"),
        _spelled(first, TokenType.NUMBER, "1"),
        _spelled(on, TokenType.FROM, "FROM"),
        *tokens[2:],
    ]
    refuse_later(query, len(query))
    return parse(query)


def _spelled(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)
