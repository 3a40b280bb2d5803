"""A query's text becomes sqlglot's tree, and the tokens of its window and its REFRESH.

The tokens alone tell where the clauses of a SELECT begin. Clauses that the language has and this
version does not are refused at their first word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.dialect import PSoup, Refused
from querystem.language.errors import NotYet, Span, SyntaxProblem
from querystem.language.names import nearest
from querystem.language.scan import MAX_TEXT, TokenReader, scan, span_of
from querystem.language.statements import wrong_statement
from querystem.language.windows import WINDOW_WORDS

_DIALECT = PSoup()


@dataclass(frozen=True, slots=True)
class Parsed:
    """A query in parts: `window` is empty where the text has none; `tail` is the window and all
    that follows."""

    select: exp.Select
    window: Sequence[Token]
    refresh: ParsedRefresh | None
    tail: Sequence[Token]


def parse_query(text: str, max_text: int = MAX_TEXT) -> Parsed:
    """The parts of a query's text; raises SyntaxProblem, and NotYet."""
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
    reader = TokenReader(tokens, end)
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
    """A hint that says what to write instead of the refused word, or of the one before it."""
    words = _last_words(token, tokens)
    return next((_INSTEAD[word] for word in reversed(words) if word in _INSTEAD), "")


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
    "TOP": "write LIMIT number after ORDER BY",
    "FILTER": "write the condition inside: count(CASE WHEN condition THEN 1 END)",
    "IGNORE": "aggregates leave NULLs out",
    "RESPECT": "aggregates leave NULLs out",
    "ON": "ROWS 1 PARTITION BY column at the end of the query is the newest row of each",
    "QUALIFY": "ROWS 5 PARTITION BY column at the end of the query is the newest five of each",
}


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

_DEEPER = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}


def outside(tokens: Sequence[Token], start: int = 0) -> Iterator[tuple[int, Token]]:
    """The tokens from `start` on that stand outside parentheses, with their index."""
    depth = 0
    for index in range(start, len(tokens)):
        token = tokens[index]
        depth += _DEEPER.get(token.token_type, 0)
        if depth == 0:
            yield index, token


def from_start(tokens: Sequence[Token]) -> int:
    """The index of FROM, or the end where there is none."""
    for index, token in outside(tokens):
        if token.token_type == TokenType.FROM and not _is_distinct(tokens[:index]):
            return index
    return len(tokens)


def window_start(tokens: Sequence[Token]) -> int:
    """The index of the first window word outside parentheses, after FROM."""
    for index, token in outside(tokens, from_start(tokens)):
        if token.token_type == TokenType.VAR and token.text.upper() in WINDOW_WORDS:
            return index
    return len(tokens)


def refresh_start(tokens: Sequence[Token], start: int) -> int:
    """The index of REFRESH outside parentheses, from `start` on, or the end."""
    for index, token in outside(tokens, start):
        if token.token_type == TokenType.VAR and token.text.upper() == "REFRESH":
            return index
    return len(tokens)


def _is_distinct(before: Sequence[Token]) -> bool:
    """Whether a FROM after these tokens is that of IS [NOT] DISTINCT FROM."""
    kinds = [token.token_type for token in before[-2:]]
    return kinds in (
        [TokenType.IS, TokenType.DISTINCT],
        [TokenType.NOT, TokenType.DISTINCT],
    )


_ALONE = "register each SELECT on its own"
_ONE = "select from one stream"
_NEWEST = "ROWS 5 PARTITION BY column at the end of the query is the newest five of each"
_NOT_YET = {
    TokenType.JOIN: ("a join", _ONE),
    TokenType.UNION: ("UNION", _ALONE),
    TokenType.EXCEPT: ("EXCEPT", _ALONE),
    TokenType.INTERSECT: ("INTERSECT", _ALONE),
    TokenType.SELECT: ("a query inside a query", _ALONE),
    TokenType.EXISTS: ("EXISTS", _ALONE),
    TokenType.OVER: ("OVER", _NEWEST),
}


def refuse_later(tokens: Sequence[Token], cut: int) -> None:
    """Raises NotYet at the first word of a clause that this version does not have.

    `tokens` begin with SELECT; the window begins at `cut`.
    """
    for token in tokens[1:]:
        if _is_word(token, "WINDOW"):
            raise NotYet(
                "a window for each stream", span_of(token), hint="write it at the end of the query"
            )
        if clause := _NOT_YET.get(token.token_type):
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


_KINDS = "write REFRESH EVERY 5 MINUTES or REFRESH ON stream WHERE condition"
_LAST = "REFRESH stands last, after the window"


@dataclass(frozen=True, slots=True)
class ParsedRefresh:
    """A REFRESH clause: `period` has the tokens after EVERY, or `rows` the stream and condition
    after ON, as a query of their own."""

    span: Span
    period: Sequence[Token]
    rows: exp.Select | None


def parse_refresh(
    tokens: Sequence[Token], end: int, parse: Callable[[list[Token]], exp.Select]
) -> ParsedRefresh | None:
    """The REFRESH clause that `tokens` are, None where there are none; `parse` parses a SELECT."""
    if not tokens:
        return None
    reader = TokenReader(tokens, end)
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


def _rows(tokens: Sequence[Token], parse: Callable[[list[Token]], exp.Select]) -> exp.Select:
    """The stream and condition after REFRESH ON, as a query of their own."""
    for _, token in outside(tokens, 2):
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
    refuse_later(query, len(query))
    return parse(query)


def _spelled(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)
