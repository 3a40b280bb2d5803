"""Refusals of texts that can't be parsed: the error, its place and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.errors import SyntaxProblem
from querystem.language.syntax.frames import REFRESH_AT_END, WINDOW_AT_END, WINDOW_WORDS
from querystem.language.syntax.refreshes import AFTER_FROM, CLAUSE_ORDER
from querystem.language.tokens.dialect import Refused
from querystem.language.tokens.durations import UNITS
from querystem.language.tokens.names import nearest
from querystem.language.tokens.scan import TokenReader, span_of


def refusal_of(refused: Refused, tokens: Sequence[Token]) -> SyntaxProblem:
    """Return the error for a text that sqlglot could not parse, with a hint if one fits."""
    token, message = refused.token, refused.message
    if token and token.token_type in (WINDOW_AT_END, REFRESH_AT_END):
        tokens = tokens[: next(at for at, candidate in enumerate(tokens) if candidate is token)]
        token = tokens[-1]
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
    """Return a hint that says what to write instead of the refused word, or of the one before
    it."""
    words = _last_words(token, tokens)
    if words == ["DISTINCT", "ON"]:
        return "ROWS 1 PARTITION BY column at the end of the query is the newest row of each"
    if len(words) == 2 and words[1].removesuffix("S") in UNITS and words[0].isdigit():
        return f"a duration in an expression is written INTERVAL '{words[0]}' {words[1]}"
    instead = next(
        (_INSTEAD_OF_WORD[word] for word in reversed(words) if word in _INSTEAD_OF_WORD), ""
    )
    return instead or (_INSTEAD_OF_WORD["MINUS"] if token.token_type == TokenType.DASH else "")


def _meant(token: Token, tokens: Sequence[Token]) -> str:
    if token.token_type in AFTER_FROM:
        return f"the order is {CLAUSE_ORDER}"
    words = [word for word in _last_words(token, tokens) if word not in _WORDS]
    near = next(filter(None, (nearest(word, _WORDS, 0.75) for word in words)), None)
    return f"did you mean {near}?" if near else ""


def _last_words(token: Token, tokens: Sequence[Token]) -> list[str]:
    at = next((index for index, candidate in enumerate(tokens) if candidate is token), 0)
    return [word.text.upper() for word in tokens[max(0, at - 1) : at + 1]]


_WORDS = [*sorted(WINDOW_WORDS), "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET"]
_INSTEAD_OF_WORD = {
    "INTERVAL": "write INTERVAL '10' MINUTE, INTERVAL '-10' MINUTE or :n * INTERVAL '1' MINUTE",
    "FETCH": "write LIMIT number",
    "MINUS": "rows of one query without those of another: SELECT … EXCEPT ALL SELECT …",
    "TOP": "write LIMIT number after ORDER BY",
    "FILTER": "write the condition inside: count(CASE WHEN condition THEN 1 END)",
    "IGNORE": "aggregates leave NULLs out",
    "RESPECT": "aggregates leave NULLs out",
    "NATURAL": "write JOIN stream USING (column, …)",
    "RECURSIVE": "a query sees those that stand before it",
    "QUALIFY": "ROWS 5 PARTITION BY column at the end of the query is the newest five of each",
}


def wrong_statement(reader: TokenReader) -> SyntaxProblem:
    """Return the error for any statement but CREATE, ALTER, DROP and SELECT, with a hint."""
    span, word = reader.span, reader.skip().text.upper()[:60]
    # Papers write R1 - R2 for the difference of two relations.
    statements = _INSTEAD_OF_WORD["MINUS"] if reader.sees("-") else _STATEMENTS
    return SyntaxProblem(
        f"{word} is not a statement of the language",
        span,
        hint=_INSTEAD_OF_STATEMENT.get(word, statements),
        reason="WRONG_STATEMENT",
    )


_STATEMENTS = "write CREATE STREAM …, CREATE VIEW …, ALTER STREAM …, DROP … or SELECT …"

_INSTEAD_OF_STATEMENT = {
    "INSERT": "rows are sent with Publish",
    "UPDATE": "rows don't change; publish a new one, which replaces the earlier row of its key",
    "DELETE": "publish a row of the key with _op delete; a stream goes with DROP STREAM",
    "SHOW": "list the streams with ListStreams, or psoup stream list",
    "DESCRIBE": "use DescribeStream, or psoup stream show",
}
