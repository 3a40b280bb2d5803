"""A query's text to sqlglot's tree and the tokens of its window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.dialect import PSoup, Refused
from querystem.language.errors import NotYet, SyntaxProblem
from querystem.language.later import refuse_later
from querystem.language.scan import MAX_TEXT, Reader, scan, span_of
from querystem.language.statements import wrong_statement
from querystem.language.windows import WINDOW_WORDS

_DIALECT = PSoup()


@dataclass(frozen=True, slots=True)
class Parsed:
    """`window` is empty where the text has none."""

    select: exp.Select
    window: Sequence[Token]


def parse_query(text: str, max_text: int = MAX_TEXT) -> Parsed:
    """Raises SyntaxProblem, NotYet."""
    tokens = scan(text, max_text)
    _check_statement(tokens, len(text))
    cut = _window_start(tokens)
    refuse_later(tokens, cut)
    return Parsed(_select(tokens[:cut], text), tokens[cut:])


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


def _window_start(tokens: Sequence[Token]) -> int:
    """The index of the first window word outside parentheses, after FROM."""
    depth, after_from = 0, False
    for index, token in enumerate(tokens):
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0 and token.token_type == TokenType.FROM:
            after_from = True
        elif depth == 0 and after_from and _is_window_word(token):
            return index
    return len(tokens)


def _is_window_word(token: Token) -> bool:
    return token.token_type == TokenType.VAR and token.text.upper() in WINDOW_WORDS


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
    if message.startswith(("Invalid expression", "Required")):
        message = f"did not expect {token.text[:60]!r} here"
    return SyntaxProblem(message[:1].lower() + message[1:], span_of(token))
