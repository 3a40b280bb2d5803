"""Windows and REFRESH, set apart before a text is parsed: sqlglot has no grammar for them.

The tokens of a window, at the end of a block or in WINDOW(…) after an item of FROM, become one
token, as those of a REFRESH do. The parser takes that token, and the binder reads the tokens that
it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.errors import SyntaxProblem
from querystem.language.tokens.names import words
from querystem.language.tokens.scan import span_of

# Outside parentheses, after FROM, the first of these begins the window of a block.
WINDOW_WORDS = words("BEGIN RANGE DURING ROWS UNBOUNDED REFRESH SLIDE")
# The kinds of the tokens that stand for a window or a REFRESH; no text has tokens of these kinds.
WINDOW_AT_END = TokenType.QUALIFY
WINDOW_OF_ITEM = TokenType.TABLE_SAMPLE
REFRESH_AT_END = TokenType.SETTINGS

_BETWEEN_BLOCKS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
# What was read since the last open parenthesis: no SELECT, SELECT, or FROM.
_NO_QUERY, _OUTPUTS, _AFTER_FROM = range(3)


@dataclass(frozen=True, slots=True)
class FramedTokens:
    """The tokens of a text with one token for each window and each REFRESH. `runs` has the tokens
    that such a token stands for, by its first character."""

    tokens: list[Token]
    runs: Mapping[int, Sequence[Token]]


def set_apart(tokens: Sequence[Token]) -> FramedTokens:
    """Return the tokens of a query with its windows and its REFRESH set apart; raise
    SyntaxProblem."""
    return _Framing(tokens).done()


class _Framing:
    """A walk over tokens; `_levels` has what was read inside each open parenthesis."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._framed: list[Token] = []
        self._runs: dict[int, Sequence[Token]] = {}
        self._levels = [_NO_QUERY]

    def done(self) -> FramedTokens:
        at = 0
        while at < len(self._tokens):
            at = self._next(at)
        return FramedTokens(self._framed, self._runs)

    def _next(self, at: int) -> int:
        """Take the token at `at`, or the window that begins there; return the index after it."""
        token, levels = self._tokens[at], self._levels
        match token.token_type:
            case TokenType.VAR if levels[-1] == _AFTER_FROM:
                word = token.text.upper()
                if word in WINDOW_WORDS:
                    return self._at_end(at)
                if word == "WINDOW":
                    return self._of_item(at)
            case TokenType.L_PAREN:
                levels.append(_NO_QUERY)
            case TokenType.R_PAREN:
                if levels.pop() == _AFTER_FROM:
                    levels[-1] = _AFTER_FROM
            case TokenType.SELECT:
                levels[-1] = _OUTPUTS
            case TokenType.FROM if levels[-1] == _OUTPUTS and not _is_distinct(self._tokens, at):
                levels[-1] = _AFTER_FROM
        self._framed.append(token)
        return at + 1

    def _at_end(self, at: int) -> int:
        end = _end_of_run(self._tokens, at)
        turn = refresh_start(self._tokens, at, end)
        if at < turn:
            self._stand_in(WINDOW_AT_END, at, turn, self._tokens[at:turn])
        if turn < end:
            if end < len(self._tokens) and self._tokens[end].token_type in _BETWEEN_BLOCKS:
                raise SyntaxProblem(
                    "REFRESH stands last, after the window of the whole query",
                    span_of(self._tokens[turn]),
                    hint="a part that is refreshed on its own is written in parentheses:"
                    " (SELECT … REFRESH …) UNION ALL SELECT …",
                )
            self._stand_in(REFRESH_AT_END, turn, end, self._tokens[turn:end])
        return end

    def _of_item(self, at: int) -> int:
        opened = at + 1
        if opened >= len(self._tokens) or self._tokens[opened].token_type != TokenType.L_PAREN:
            raise SyntaxProblem(
                "expected ( after WINDOW",
                span_of(self._tokens[at]),
                hint="a window of one stream is written stream WINDOW(RANGE 10 MINUTES)",
            )
        end = _end_of_run(self._tokens, opened + 1, at_set_operators=False)
        self._stand_in(WINDOW_OF_ITEM, at, end + 1, self._tokens[opened + 1 : end])
        return end + 1

    def _stand_in(self, kind: TokenType, start: int, end: int, run: Sequence[Token]) -> None:
        first, last = self._tokens[start], self._tokens[end - 1]
        place = first.line, first.col, first.start, last.end
        self._framed.append(Token(kind, first.text, *place))
        self._runs[first.start] = run


def _end_of_run(tokens: Sequence[Token], start: int, at_set_operators: bool = True) -> int:
    """Return the index after the last token of a window: that of a closing parenthesis, of a set
    operator, or of the end of the text."""
    depth = 0
    for at in range(start, len(tokens)):
        kind = tokens[at].token_type
        depth += _DEEPER.get(kind, 0)
        if depth < 0 or (at_set_operators and depth == 0 and kind in _BETWEEN_BLOCKS):
            return at
    return len(tokens)


_DEEPER = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}


def refresh_start(tokens: Sequence[Token], start: int, end: int) -> int:
    """Return the index of REFRESH outside parentheses between the two, or `end`."""
    depth = 0
    for at in range(start, end):
        token = tokens[at]
        depth += _DEEPER.get(token.token_type, 0)
        if depth == 0 and token.token_type == TokenType.VAR and token.text.upper() == "REFRESH":
            return at
    return end


def _is_distinct(tokens: Sequence[Token], at: int) -> bool:
    """Return whether the FROM at `at` is that of IS [NOT] DISTINCT FROM."""
    kinds = [token.token_type for token in tokens[max(0, at - 2) : at]]
    return kinds in (
        [TokenType.IS, TokenType.DISTINCT],
        [TokenType.NOT, TokenType.DISTINCT],
    )
