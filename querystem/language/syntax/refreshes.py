"""The REFRESH of a query or of a window, parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.errors import NotYet, Span, SyntaxProblem
from querystem.language.syntax.frames import WINDOW_WORDS
from querystem.language.syntax.tree import node_span
from querystem.language.tokens.names import nearest
from querystem.language.tokens.scan import TokenReader, span_of

CLAUSE_ORDER = (
    "SELECT … FROM … WHERE … GROUP BY … HAVING … ORDER BY … LIMIT … OFFSET …, the window, REFRESH"
)
AFTER_FROM = frozenset(
    {
        TokenType.WHERE,
        TokenType.GROUP_BY,
        TokenType.HAVING,
        TokenType.ORDER_BY,
        TokenType.LIMIT,
        TokenType.OFFSET,
    }
)

_NEWEST = "ROWS 5 PARTITION BY column at the end of the query is the newest five of each"
_KINDS = "write REFRESH EVERY 5 MINUTES or REFRESH ON stream WHERE condition"
_POINTS = (TokenType.NUMBER, TokenType.COLON, TokenType.INTERVAL)
_LAST = "REFRESH stands last, after the window"


def refuse_later(tokens: Sequence[Token]) -> None:
    """Raise NotYet at the first word of a clause that this version does not have, outside
    windows."""
    for token in tokens:
        if token.token_type == TokenType.OVER:
            raise NotYet("OVER", span_of(token), hint=_NEWEST)


@dataclass(frozen=True, slots=True)
class ParsedPoints:
    """A part of a REFRESH: `period` has the tokens after EVERY, or `rows` the stream and condition
    after ON, as a query of their own. The text goes on, or ends, at `end`."""

    end: int
    period: Sequence[Token]
    rows: exp.Expr | None


@dataclass(frozen=True, slots=True)
class ParsedRefresh:
    """A REFRESH clause: its parts, between which OR stands."""

    span: Span
    parts: Sequence[ParsedPoints]


def parse_refresh(
    tokens: Sequence[Token], end: int, parse: Callable[[list[Token]], exp.Expr]
) -> ParsedRefresh:
    """Return the REFRESH clause that `tokens` are; `parse` parses a SELECT. Raise SyntaxProblem,
    NotYet."""
    span = span_of(tokens[0]).to(span_of(tokens[-1]))
    starts = [0, *_further_parts(tokens)]
    ends = [*(tokens[start].start for start in starts[1:]), end]
    stops = [*starts[1:], len(tokens)]
    return ParsedRefresh(
        span,
        [
            _points(tokens[start:stop], last, parse)
            for start, stop, last in zip(starts, stops, ends, strict=True)
        ],
    )


def _further_parts(tokens: Sequence[Token]) -> list[int]:
    """Return the places of OR before a further EVERY or ON; any other OR belongs to a condition."""
    places, depth = [], 0
    for at, token in enumerate(tokens):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth or token.token_type != TokenType.OR:
            continue
        words = [word.text.upper() for word in tokens[at + 1 : at + 2]]
        follows = [word.token_type for word in tokens[at + 2 : at + 3]]
        if words == ["ON"] or (words == ["EVERY"] and (not follows or follows[0] in _POINTS)):
            places.append(at)
    return places


def _points(
    tokens: Sequence[Token], end: int, parse: Callable[[list[Token]], exp.Expr]
) -> ParsedPoints:
    """Return a part of a REFRESH, of which REFRESH or OR is the first token."""
    reader = TokenReader(tokens, end)
    if not reader.take("OR"):
        reader.need("REFRESH")
    if reader.take("EVERY"):
        if reader.token is None:
            reader.fail("expected a duration", hint=_KINDS)
        return ParsedPoints(end, tokens[2:], None)
    if reader.take("ON"):
        if reader.token is None:
            reader.fail("expected a stream", hint=_KINDS)
        return ParsedPoints(end, (), _rows(tokens, parse))
    near = nearest(reader.token.text.upper(), ("EVERY", "ON")) if reader.token else None
    reader.fail("expected EVERY or ON after REFRESH", f"did you mean {near}?" if near else _KINDS)


def _rows(tokens: Sequence[Token], parse: Callable[[list[Token]], exp.Expr]) -> exp.Expr:
    """Return the stream and condition after REFRESH ON, as a query of their own."""
    for token in _outside(tokens[2:]):
        if token.token_type == TokenType.VAR and token.text.upper() in WINDOW_WORDS:
            raise SyntaxProblem(f"{token.text} after REFRESH", span_of(token), hint=_LAST)
        if token.token_type in AFTER_FROM and token.token_type != TokenType.WHERE:
            raise SyntaxProblem(
                f"REFRESH ON takes a stream and WHERE, no {token.text.upper()}",
                span_of(token),
                hint=f"the order is {CLAUSE_ORDER}",
            )
    first, on = tokens[:2]
    query = [
        _spelled(first, TokenType.SELECT, "SELECT"),
        _spelled(first, TokenType.NUMBER, "1"),
        _spelled(on, TokenType.FROM, "FROM"),
        *tokens[2:],
    ]
    refuse_later(query)
    rows = parse(query)
    _check_rows(rows)
    return rows


def _check_rows(rows: exp.Expr) -> None:
    """Raise NotYet unless REFRESH ON has a stream and a condition alone."""
    if not isinstance(rows.args["from_"].this, exp.Table):
        raise NotYet("REFRESH ON a query", node_span(rows.args["from_"].this), hint=_KINDS)
    if joins := rows.args.get("joins"):
        raise NotYet("REFRESH ON several streams", node_span(joins[0]), hint=_KINDS)


def _outside(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens that stand outside parentheses."""
    depth = 0
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0:
            yield token


def _spelled(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)
