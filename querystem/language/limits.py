"""How much a text may hold: counted before anything is parsed, which takes far longer.

The limits are for what nobody writes by hand. A text within them is parsed in some tenths of a
second at the worst.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.errors import Span, SyntaxProblem

MAX_TEXT = 64 * 1024
MAX_WINDOW = 1024
MAX_TOKENS = 16_384
MAX_TERMS = 4096
MAX_PARENTHESES = 32
MAX_SIGNS = 32

# Words, numbers, quoted texts and names, comments and blanks; every other character is a token.
_TOKEN = re.compile(r"[^\W\d]\w*|\d[\w.]*|'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|\s+|.", re.DOTALL)
_JOINING = (TokenType.AND, TokenType.OR)
_SIGNS = (TokenType.NOT, TokenType.DASH, TokenType.PLUS)


def check_length(text: str, most: int, hint: str = "the limit is a setting of the server") -> None:
    """At most so many bytes."""
    if len(text) > most or len(text.encode("utf-8", "replace")) > most:
        raise SyntaxProblem(
            f"the text is longer than {most} bytes", hint=hint, reason="TEXT_TOO_LONG"
        )


def check_count(text: str) -> None:
    """At most so many tokens, counted about as they are read, a hundred times faster."""
    if len(text) <= MAX_TOKENS:
        return
    count = 0
    for match in _TOKEN.finditer(text):
        count += not match[0].isspace()
        if count > MAX_TOKENS:
            raise SyntaxProblem(
                f"the text has more than {MAX_TOKENS:,} words, numbers and signs",
                Span(match.start(), match.end()),
                hint="register several queries, or one with parameters for many values",
                reason="TEXT_TOO_LONG",
            )


def check_terms(tokens: Sequence[Token]) -> None:
    """At most so many conditions that AND and OR join."""
    joining = [token for token in tokens if token.token_type in _JOINING]
    if len(joining) >= MAX_TERMS:
        raise SyntaxProblem(
            f"more than {MAX_TERMS:,} conditions are joined by AND and OR",
            _span(joining[MAX_TERMS - 1]),
            hint="write column IN (…) for a list of values, or register several queries",
            reason="TOO_MANY_TERMS",
        )


def check_depth(tokens: Sequence[Token]) -> None:
    """Parentheses are closed, and at most so many stand inside each other, nor do more signs and
    NOTs follow each other."""
    opened: list[Token] = []
    signs = 0
    for token in tokens:
        kind = token.token_type
        signs = signs + 1 if kind in _SIGNS else 0
        if kind == TokenType.L_PAREN:
            opened.append(token)
        elif kind == TokenType.R_PAREN:
            if not opened:
                raise SyntaxProblem("this ) closes nothing", _span(token))
            opened.pop()
        if len(opened) > MAX_PARENTHESES:
            raise _too_deep(f"more than {MAX_PARENTHESES} parentheses inside each other", token)
        if signs > MAX_SIGNS:
            raise _too_deep(f"more than {MAX_SIGNS} signs or NOTs one after the other", token)
    if opened:
        raise SyntaxProblem("this ( is never closed", _span(opened[-1]))


def _too_deep(message: str, token: Token) -> SyntaxProblem:
    return SyntaxProblem(message, _span(token), reason="NESTED_TOO_DEEP")


def _span(token: Token) -> Span:
    return Span(token.start, token.end + 1)
