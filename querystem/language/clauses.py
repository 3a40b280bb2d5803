"""Where the clauses of a SELECT begin, by its tokens alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.windows import WINDOW_WORDS

ORDER = (
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
