"""A query's text becomes sqlglot's tree, with the tokens of its windows in it, and each REFRESH.

Clauses that the language has and this version does not are refused at their first word, or when
they are bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.dialect import PSoup, Refused
from querystem.language.durations import UNITS
from querystem.language.errors import SyntaxProblem
from querystem.language.frames import REFRESH_AT_END, WINDOW_AT_END, WINDOW_WORDS, set_apart
from querystem.language.grammar import QueryParser
from querystem.language.names import nearest
from querystem.language.refreshes import AFTER_FROM, CLAUSE_ORDER, refuse_later
from querystem.language.scan import MAX_TEXT, TokenReader, scan, span_of
from querystem.language.statements import wrong_statement

_DIALECT = PSoup()


def parse_query(text: str, max_text: int = MAX_TEXT) -> exp.Expr:
    """The tree of a query's text; raises SyntaxProblem, and NotYet."""
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
    """Refuses SELECT STREAMED, which elsewhere asks for the changes of an answer."""
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
        raise _problem(refused, tokens) from None
    assert query is not None
    return query


def _problem(refused: Refused, tokens: Sequence[Token]) -> SyntaxProblem:
    token, message = refused.token, refused.message
    if token and token.token_type in (WINDOW_AT_END, REFRESH_AT_END):
        tokens = tokens[: next(at for at, other in enumerate(tokens) if other is token)]
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
    """A hint that says what to write instead of the refused word, or of the one before it."""
    words = _last_words(token, tokens)
    if words == ["DISTINCT", "ON"]:
        return "ROWS 1 PARTITION BY column at the end of the query is the newest row of each"
    if len(words) == 2 and words[1].removesuffix("S") in UNITS and words[0].isdigit():
        return _duration_hint(" ".join(words), token, tokens)
    instead = next((_INSTEAD[word] for word in reversed(words) if word in _INSTEAD), "")
    return instead or (_INSTEAD["MINUS"] if token.token_type == TokenType.DASH else "")


def _duration_hint(duration: str, token: Token, tokens: Sequence[Token]) -> str:
    """Return what to write for a duration that stands outside a window, as in ts > NOW - 5 DAYS."""
    at = next(index for index, other in enumerate(tokens) if other is token)
    if [word.text.upper() for word in tokens[max(0, at - 3) : at - 1]] == ["NOW", "-"]:
        return (
            f"NOW stands only in windows: end the query with RANGE {duration} for the rows since "
            f"then, or with BEGIN NOW - 30 DAYS END NOW - {duration} for those before"
        )
    amount, unit = duration.split()
    return f"a duration in an expression is written INTERVAL '{amount}' {unit}"


def _meant(token: Token, tokens: Sequence[Token]) -> str:
    if token.token_type in AFTER_FROM:
        return f"the order is {CLAUSE_ORDER}"
    words = [word for word in _last_words(token, tokens) if word not in _WORDS]
    found = next(filter(None, (nearest(word, _WORDS, 0.75) for word in words)), None)
    return f"did you mean {found}?" if found else ""


def _last_words(token: Token, tokens: Sequence[Token]) -> list[str]:
    at = next((index for index, other in enumerate(tokens) if other is token), 0)
    return [word.text.upper() for word in tokens[max(0, at - 1) : at + 1]]


_WORDS = [*sorted(WINDOW_WORDS), "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET"]
_INSTEAD = {
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
