"""What the language has and this version does not: refused at its first word."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.clauses import AFTER_FROM, from_start, outside
from querystem.language.errors import NotYet
from querystem.language.scan import span_of

_ALONE = "register each SELECT on its own"
_ONE = "select from one stream"
_WINDOW = "choose rows by time with the window of the query"
_NEWEST = "ROWS 5 PARTITION BY column at the end of the query is the newest five of each"
_CLAUSES = {
    TokenType.JOIN: ("a join", _ONE),
    TokenType.UNION: ("UNION", _ALONE),
    TokenType.EXCEPT: ("EXCEPT", _ALONE),
    TokenType.INTERSECT: ("INTERSECT", _ALONE),
    TokenType.SELECT: ("a query inside a query", _ALONE),
    TokenType.EXISTS: ("EXISTS", _ALONE),
    TokenType.OVER: ("OVER", _NEWEST),
}


def refuse_later(tokens: Sequence[Token], cut: int) -> None:
    """Raises NotYet at the first word of a clause that comes later.

    `tokens` begin with SELECT; the window begins at `cut`.
    """
    for index, token in enumerate(tokens[1:], start=1):
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
    for _, token in outside(tokens, from_start(tokens)):
        if token.token_type in AFTER_FROM:
            return
        if token.token_type == TokenType.COMMA:
            raise NotYet("a join", span_of(token), hint=_ONE)


def _is_word(token: Token, word: str) -> bool:
    return token.token_type == TokenType.VAR and token.text.upper() == word
