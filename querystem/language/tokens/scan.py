"""Tokens of a text, within limits, and a reader of them for clauses that sqlglot has no grammar
for.

The limits are checked before anything is parsed, because parsing takes far longer. No text that a
person writes reaches them; a text within them is parsed in a few tenths of a second at worst.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.errors import Span, SyntaxProblem
from querystem.language.tokens.dialect import PAIRS, PSoup
from querystem.language.tokens.names import read_name, words
from querystem.pace import spending

MAX_TEXT = 64 * 1024  # bytes
MAX_WINDOW = 1024  # bytes
MAX_TOKENS = 16_384
MAX_TERMS = 4096
MAX_PARENTHESES = 32
MAX_SIGNS = 32

# Words, numbers, quoted texts and names, comments and blanks; every other character is a token.
_TOKEN = re.compile(r"[^\W\d]\w*|\d[\w.]*|'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|\s+|.", re.DOTALL)
_JOINING = (TokenType.AND, TokenType.OR)
_SIGNS = (TokenType.NOT, TokenType.DASH, TokenType.PLUS)

_DIALECT = PSoup()
# Units (`querystem.pace`) of a character that is scanned.
_CHARACTER_UNITS = 1000
_SYMBOLS = words("( ) , . : ; = < > <= >= <> != + - * / % ||")
_INSTEAD = {
    "::": "write CAST(value AS TYPE)",
    "!": "write NOT, or <> for not equal",
    "?": "parameters have names: write :name",
    "@": "parameters are written :name",
    "`": 'names are quoted with double quotes: "name"',
    "^": "write power(x, y)",
    "&": "write AND",
    "|": "write OR",
}


def span_of(token: Token) -> Span:
    return Span(token.start, token.end + 1)


def scan(text: str, max_text: int = MAX_TEXT) -> list[Token]:
    """Return the tokens of one statement, at least one, without a closing semicolon."""
    # The cheap limits come first: the tokenizer is far slower than these checks.
    check_length(text, max_text)
    check_count(text)
    spending()(len(text) * _CHARACTER_UNITS)
    tokens = _tokens(text)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise SyntaxProblem("the text is empty", hint="write SELECT … or CREATE STREAM …")
    tokens = _name_parameters(_join_pairs(tokens))
    _check_symbols(tokens)
    _check_joined(tokens)
    check_depth(tokens)
    check_terms(tokens)
    return tokens


def _tokens(text: str) -> list[Token]:
    tokenizer = _DIALECT.tokenizer()
    try:
        return tokenizer.tokenize(text)
    except TokenError:
        # The unclosed quote follows the last token that was read, after blanks.
        start = tokenizer.tokens[-1].end + 1 if tokenizer.tokens else 0
        start += len(text[start:]) - len(text[start:].lstrip())
        raise SyntaxProblem(
            "a quote or a comment is opened and never closed",
            Span(min(start, max(0, len(text) - 1)), len(text)),
            hint="a quote inside a text is written twice: 'it''s'",
        ) from None


def _join_pairs(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with GROUP BY and the like as one token, also if a comment stands between
    the two words."""
    joined: list[Token] = []
    for token in tokens:
        before = joined[-1] if joined else None
        pair = (_word(before), _word(token)) if before is not None else ("", "")
        if before is not None and pair in PAIRS:
            place = before.line, before.col, before.start, token.end
            joined[-1] = Token(PAIRS[pair], " ".join(pair), *place)
        else:
            joined.append(token)
    return joined


def _name_parameters(tokens: list[Token]) -> list[Token]:
    """Return the tokens with the word in `:limit` as a name in lower case, also if it is a
    keyword."""
    named = tokens[:1]
    for colon, token in zip(tokens, tokens[1:], strict=False):
        if colon.text == ":" and colon.end + 1 == token.start and _may_be_name(token):
            name = token.text.lower()
            kind = TokenType.IDENTIFIER
            token = Token(kind, name, token.line, token.col, token.start, token.end)
        named.append(token)
    return named


def _check_symbols(tokens: Sequence[Token]) -> None:
    for token in tokens:
        text = token.text
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        if quoted or text in _SYMBOLS or text[:1].isalnum() or text[:1] == "_":
            continue
        hint = _INSTEAD.get(text, "")
        raise SyntaxProblem(f"{text!r} is not part of the language", span_of(token), hint=hint)
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise SyntaxProblem(
                "one statement at a time", span_of(token), hint="send the second one on its own"
            )


def _check_joined(tokens: Sequence[Token]) -> None:
    wordy = (TokenType.NUMBER, TokenType.VAR)
    for first, second in zip(tokens, tokens[1:], strict=False):
        if (
            first.text == "."
            and second.token_type == TokenType.NUMBER
            and first.end + 1 != second.start
        ):
            raise SyntaxProblem("a number is missing", span_of(first).to(span_of(second)))
        if (
            first.end + 1 == second.start
            and first.token_type == TokenType.NUMBER
            and (second.token_type in wordy or second.text[:1].isalpha())
        ):
            raise SyntaxProblem(
                "a number runs into a word",
                span_of(first).to(span_of(second)),
                hint="put a blank between them",
            )


class TokenReader:
    """A cursor over tokens: every `take_*` either moves past the tokens it names, or does not
    move."""

    def __init__(self, tokens: Sequence[Token], end: int) -> None:
        """Read `tokens` of a text that ends at `end`; missing tokens are reported there."""
        self._tokens = tokens
        self._end = end
        self._index = 0

    @property
    def token(self) -> Token | None:
        return self._tokens[self._index] if self._index < len(self._tokens) else None

    @property
    def consumed(self) -> Sequence[Token]:
        """The tokens before the reader."""
        return self._tokens[: self._index]

    @property
    def span(self) -> Span:
        """The place of the next token."""
        return span_of(self.token) if self.token else Span(max(0, self._end - 1), self._end)

    def sees(self, *words: str) -> bool:
        """Return whether the next tokens are these words or symbols, unquoted."""
        ahead = self._tokens[self._index : self._index + len(words)]
        return [_word(token) for token in ahead] == list(words)

    def take(self, *words: str) -> Span | None:
        if not self.sees(*words):
            return None
        first = self.span
        self._index += len(words)
        return first.to(span_of(self._tokens[self._index - 1]))

    def need(self, *words: str, hint: str = "") -> Span:
        span = self.take(*words)
        if span is None:
            self.fail(f"expected {' '.join(words)}", hint=hint)
        return span

    def take_kind(self, kind: TokenType) -> Token | None:
        token = self.token
        if token is None or token.token_type != kind:
            return None
        self._index += 1
        return token

    def skip(self) -> Token:
        token = self.token
        if token is None:
            self.fail("the text ends too early")
        self._index += 1
        return token

    def need_name(self, what: str) -> tuple[str, Span]:
        token = self.token
        if token is None or not _may_be_name(token):
            self.fail(f"expected {what}")
        span = span_of(token)
        name = read_name(token.text, span, token.token_type == TokenType.IDENTIFIER)
        self._index += 1
        return name, span

    def finish(self, hint: str = "") -> None:
        if self.token is not None:
            self.unexpected(hint)

    def unexpected(self, hint: str = "") -> NoReturn:
        written = self.token.text[:60] if self.token else ""
        self.fail(f"did not expect {written!r} here", hint=hint)

    def fail(self, message: str, hint: str = "") -> NoReturn:
        if self.token is None:
            message += ", but the text ends"
        raise SyntaxProblem(message, self.span, hint=hint)


def _word(token: Token) -> str:
    if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return ""
    return token.text.upper()


def _may_be_name(token: Token) -> bool:
    if token.token_type == TokenType.IDENTIFIER:
        return True
    word = token.text[:1]
    return token.token_type not in (TokenType.STRING, TokenType.NUMBER) and (
        word.isalpha() or word == "_"
    )


# ---- limits


def check_length(text: str, most: int, hint: str = "the limit is a setting of the server") -> None:
    """Raise SyntaxProblem for a text of more than `most` bytes."""
    # A text has at least as many bytes as characters, so most long texts need no encoding.
    if len(text) > most or len(text.encode("utf-8", "replace")) > most:
        raise SyntaxProblem(
            f"the text is longer than {most} bytes", hint=hint, reason="TEXT_TOO_LONG"
        )


def check_count(text: str) -> None:
    """Raise SyntaxProblem for a text of too many tokens, counted a hundred times faster than they
    are read."""
    # Every token has at least one character.
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
    """Raise SyntaxProblem if AND and OR join too many conditions."""
    joining = [token for token in tokens if token.token_type in _JOINING]
    if len(joining) >= MAX_TERMS:
        raise SyntaxProblem(
            f"more than {MAX_TERMS:,} conditions are joined by AND and OR",
            span_of(joining[MAX_TERMS - 1]),
            hint="write column IN (…) for a list of values, or register several queries",
            reason="TOO_MANY_TERMS",
        )


def check_depth(tokens: Sequence[Token]) -> None:
    """Raise SyntaxProblem if parentheses are not closed, or too many are nested, or too many signs
    and NOTs follow each other."""
    opened: list[Token] = []
    signs = 0
    for token in tokens:
        kind = token.token_type
        signs = signs + 1 if kind in _SIGNS else 0
        if kind == TokenType.L_PAREN:
            opened.append(token)
        elif kind == TokenType.R_PAREN:
            if not opened:
                raise SyntaxProblem("this ) closes nothing", span_of(token))
            opened.pop()
        if len(opened) > MAX_PARENTHESES:
            raise _too_deep(f"more than {MAX_PARENTHESES} parentheses inside each other", token)
        if signs > MAX_SIGNS:
            raise _too_deep(f"more than {MAX_SIGNS} signs or NOTs one after the other", token)
    if opened:
        raise SyntaxProblem("this ( is never closed", span_of(opened[-1]))


def _too_deep(message: str, token: Token) -> SyntaxProblem:
    return SyntaxProblem(message, span_of(token), reason="NESTED_TOO_DEEP")
