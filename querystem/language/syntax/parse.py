"""Parsing: a query's text becomes sqlglot's tree, with the tokens of its windows and each REFRESH.

Clauses that this version does not support yet are refused at their first word, or when they are
bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.errors import SyntaxProblem
from querystem.language.syntax.frames import set_apart
from querystem.language.syntax.grammar import QueryParser
from querystem.language.syntax.joins import move_queries_of_on
from querystem.language.syntax.refreshes import refuse_later
from querystem.language.syntax.refusals import refusal_of, wrong_statement
from querystem.language.tokens.dialect import PSoup, Refused
from querystem.language.tokens.scan import MAX_TEXT, TokenReader, scan, span_of

_DIALECT = PSoup()


def parse_query(text: str, max_text: int = MAX_TEXT) -> exp.Expr:
    """Return the tree of a query's text; raise SyntaxProblem, and NotYet."""
    tokens = scan(text, max_text)
    _check_statement(tokens, len(text))
    _refuse_streamed(tokens)
    framed = set_apart(tokens)
    refuse_later(framed.tokens)
    return _parse(framed.tokens, text, framed.runs)


def _check_statement(tokens: Sequence[Token], end: int) -> None:
    reader = TokenReader(tokens, end)
    first = next((token for token in tokens if token.token_type != TokenType.L_PAREN), None)
    if first is not None and first.token_type in (TokenType.SELECT, TokenType.WITH):
        return
    if reader.sees("CREATE") or reader.sees("DROP"):
        raise SyntaxProblem(
            "a stream or a view is defined, not registered",
            reader.span,
            hint="send it as a definition: psoup stream create, psoup view create",
            reason="WRONG_STATEMENT",
        )
    raise wrong_statement(reader)


def _refuse_streamed(tokens: Sequence[Token]) -> None:
    """Refuse SELECT STREAMED, which in other systems asks for the changes of an answer."""
    for select, word, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        streamed = select.token_type == TokenType.SELECT and word.text.upper() == "STREAMED"
        if streamed and after.token_type in (TokenType.VAR, TokenType.STAR, TokenType.IDENTIFIER):
            raise SyntaxProblem(
                "SELECT STREAMED: the changes of every answer can be read",
                span_of(word),
                hint="leave STREAMED out, keep a copy of the answer, and read the changes of that",
                reason="NOT_SUPPORTED",
            )


def _parse(tokens: list[Token], text: str, runs: Mapping[int, Sequence[Token]]) -> exp.Expr:
    parser = QueryParser(dialect=_DIALECT)
    parser.runs = runs
    parser.parse_rows = lambda rows: _parse(rows, text, {})
    try:
        (query,) = parser.parse(tokens, text)
    except Refused as refused:
        raise refusal_of(refused, tokens) from None
    assert query is not None
    move_queries_of_on(query)
    return query
