"""A query's text to sqlglot's tree and the tokens of its window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.clauses import AFTER_FROM, ORDER, refresh_start, window_start
from querystem.language.dialect import PSoup, Refused
from querystem.language.errors import NotYet, SyntaxProblem
from querystem.language.later import refuse_later
from querystem.language.limits import MAX_TEXT
from querystem.language.refreshing import ParsedRefresh, parse_refresh
from querystem.language.scan import Reader, scan, span_of
from querystem.language.statements import wrong_statement
from querystem.language.windows import WINDOW_WORDS
from querystem.language.words import nearest

_DIALECT = PSoup()


@dataclass(frozen=True, slots=True)
class Parsed:
    """`window` is empty where the text has none; `tail` is it and what follows."""

    select: exp.Select
    window: Sequence[Token]
    refresh: ParsedRefresh | None
    tail: Sequence[Token]


def parse_query(text: str, max_text: int = MAX_TEXT) -> Parsed:
    """Raises SyntaxProblem, NotYet."""
    tokens = scan(text, max_text)
    _check_statement(tokens, len(text))
    cut = window_start(tokens)
    turn = refresh_start(tokens, cut)
    refuse_later(tokens[:turn], cut)

    def parse(query: list[Token]) -> exp.Select:
        return _select(query, text)

    select, refresh = parse(tokens[:cut]), parse_refresh(tokens[turn:], len(text), parse)
    return Parsed(select, tokens[cut:turn], refresh, tokens[cut:])


def _check_statement(tokens: Sequence[Token], end: int) -> None:
    reader = Reader(tokens, end)
    if reader.sees("SELECT"):
        return
    if reader.sees("WITH"):
        raise NotYet("WITH", reader.span, hint="write one SELECT over one stream")
    if reader.sees("CREATE") or reader.sees("DROP"):
        raise SyntaxProblem(
            "a stream is defined, not registered",
            reader.span,
            hint="send it as a definition: psoup stream create, psoup stream drop",
            reason="WRONG_STATEMENT",
        )
    raise wrong_statement(reader)


def _select(tokens: list[Token], text: str) -> exp.Select:
    try:
        trees = _DIALECT.parser().parse(tokens, text)
    except Refused as refused:
        raise _problem(refused, tokens) from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Select):
        raise SyntaxProblem("expected one SELECT", span_of(tokens[0]))
    return trees[0]


def _problem(refused: Refused, tokens: Sequence[Token]) -> SyntaxProblem:
    token = refused.token
    message = refused.message
    if not token or token.token_type == TokenType.SENTINEL:
        return SyntaxProblem("the query ends too early", span_of(tokens[-1]))
    if message.startswith("Required") and token is tokens[-1]:
        return SyntaxProblem(f"something is missing after {token.text[:60]}", span_of(token))
    hint = _hint(token, tokens)
    if message.startswith(("Invalid expression", "Required")):
        message = f"did not expect {token.text[:60]!r} here"
        hint = hint or _meant(token, tokens)
    return SyntaxProblem(message[:1].lower() + message[1:], span_of(token), hint=hint)


def _hint(token: Token, tokens: Sequence[Token]) -> str:
    """What to write instead of the refused word, or of the one before it."""
    words = _last_words(token, tokens)
    return next((_INSTEAD[word] for word in reversed(words) if word in _INSTEAD), "")


def _meant(token: Token, tokens: Sequence[Token]) -> str:
    if token.token_type in AFTER_FROM:
        return f"the order is {ORDER}"
    words = [word for word in _last_words(token, tokens) if word not in _WORDS]
    found = next(filter(None, (nearest(word, _WORDS, 0.75) for word in words)), None)
    return f"did you mean {found}?" if found else ""


def _last_words(token: Token, tokens: Sequence[Token]) -> list[str]:
    at = next((index for index, other in enumerate(tokens) if other is token), 0)
    return [word.text.upper() for word in tokens[max(0, at - 1) : at + 1]]


_WORDS = [*sorted(WINDOW_WORDS), "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET"]
_INSTEAD = {
    "FETCH": "write LIMIT number",
    "TOP": "write LIMIT number after ORDER BY",
    "FILTER": "write the condition inside: count(CASE WHEN condition THEN 1 END)",
    "IGNORE": "aggregates leave NULLs out",
    "RESPECT": "aggregates leave NULLs out",
    "ON": "ROWS 1 PARTITION BY column at the end of the query is the newest row of each",
    "QUALIFY": "ROWS 5 PARTITION BY column at the end of the query is the newest five of each",
}
