"""TEXT, one at a time: a Python string is a sequence of code points."""

from __future__ import annotations


def lower(text: str) -> str:
    """One code point to one, so that lengths stay."""
    return "".join(_single(char, char.lower()) for char in text)


def upper(text: str) -> str:
    return "".join(_single(char, char.upper()) for char in text)


def substring(text: str, start: int, count: int | None = None) -> str | None:
    if count is not None and count < 0:
        return None
    return "".join(
        char
        for position, char in enumerate(text, 1)
        if start <= position and (count is None or position < start + count)
    )


def like(text: str, pattern: str) -> bool:
    """Return which prefixes of the pattern match which prefixes of the text, prefix by prefix."""
    reached = {0}
    for token, is_wildcard in _tokens(pattern):
        if is_wildcard and token == "%":
            reached = set(range(min(reached), len(text) + 1)) if reached else set()
        else:
            reached = {
                at + 1 for at in reached if at < len(text) and (is_wildcard or text[at] == token)
            }
    return len(text) in reached


def _tokens(pattern: str) -> list[tuple[str, bool]]:
    tokens, chars = [], iter(pattern)
    for char in chars:
        if char == "\\":
            tokens.append((next(chars, "\\"), False))
        else:
            tokens.append((char, char in "%_"))
    return tokens


def _single(char: str, cased: str) -> str:
    return cased if len(cased) == 1 else char
