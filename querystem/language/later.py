"""What the language has and this version does not: refused at its first word."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.errors import NotYet
from querystem.language.scan import span_of

_ALONE = "register each SELECT on its own"
_ONE = "select from one stream"
_WINDOW = "choose rows by time with the window of the query"
_DISTINCT_AFTER = (TokenType.SELECT, TokenType.L_PAREN)
_CLAUSES = {
    TokenType.JOIN: ("a join", _ONE),
    TokenType.GROUP_BY: ("GROUP BY", "select the rows and group them"),
    TokenType.HAVING: ("HAVING", "select the rows and group them"),
    TokenType.ORDER_BY: ("ORDER BY", "answers come in the order of (ts, row_id)"),
    TokenType.LIMIT: ("LIMIT", "a narrower window gives fewer rows"),
    TokenType.OFFSET: ("OFFSET", "a narrower window gives fewer rows"),
    TokenType.UNION: ("UNION", _ALONE),
    TokenType.EXCEPT: ("EXCEPT", _ALONE),
    TokenType.INTERSECT: ("INTERSECT", _ALONE),
    TokenType.SELECT: ("a query inside a query", _ALONE),
    TokenType.EXISTS: ("EXISTS", _ALONE),
    TokenType.OVER: ("OVER", "windows stand at the end of the query"),
    TokenType.PARTITION_BY: ("PARTITION BY", "select the rows and partition them"),
}


def refuse_later(tokens: Sequence[Token], cut: int) -> None:
    """Raises NotYet at the first word of a clause that comes later.

    `tokens` begin with SELECT; the window begins at `cut`.
    """
    for index, token in enumerate(tokens[1:], start=1):
        before = tokens[index - 1].token_type
        if token.token_type == TokenType.DISTINCT and before in _DISTINCT_AFTER:
            raise NotYet("DISTINCT", span_of(token), hint="select the rows and drop the repeats")
        if token.token_type == TokenType.INTERVAL and index < cut:
            raise NotYet("a duration outside windows", span_of(token), hint=_WINDOW)
        if _is_word(token, "WINDOW"):
            raise NotYet(
                "a window for each stream", span_of(token), hint="write it at the end of the query"
            )
        if clause := _CLAUSES.get(token.token_type):
            raise NotYet(clause[0], span_of(token), hint=clause[1])
    _refuse_second_stream(tokens[:cut])


def _refuse_second_stream(tokens: Sequence[Token]) -> None:
    """Raises NotYet at the comma of FROM a, b."""
    depth, in_from = 0, False
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0:
            in_from = token.token_type == TokenType.FROM or (
                in_from and token.token_type != TokenType.WHERE
            )
        if depth == 0 and in_from and token.token_type == TokenType.COMMA:
            raise NotYet("a join", span_of(token), hint=_ONE)


def _is_word(token: Token, word: str) -> bool:
    return token.token_type == TokenType.VAR and token.text.upper() == word
