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


# A text that a function makes has at most this many bytes.
_MAX_BYTES = 1 << 20


def concatenate(*parts: str) -> str | None:
    return _bounded("".join(parts))


def replace(text: str, old: str, new: str) -> str | None:
    """Look for `old` from the left, one code point after the other."""
    if not old:
        return text
    parts, place = [], 0
    while place < len(text):
        matches = text[place : place + len(old)] == old
        parts.append(new if matches else text[place])
        place += len(old) if matches else 1
    return _bounded("".join(parts))


def _bounded(text: str) -> str | None:
    return text if len(text.encode()) <= _MAX_BYTES else None


def left(text: str, count: int) -> str:
    return "".join(char for place, char in enumerate(text) if place < _kept_count(text, count))


def right(text: str, count: int) -> str:
    first = len(text) - _kept_count(text, count)
    return "".join(char for place, char in enumerate(text) if place >= first)


def _kept_count(text: str, count: int) -> int:
    return len(text) + count if count < 0 else count


def split_part(text: str, separator: str, number: int) -> str:
    parts, remaining = [], text
    while separator and (place := strpos(remaining, separator)):
        parts.append(remaining[: place - 1])
        remaining = remaining[place - 1 + len(separator) :]
    parts.append(remaining)
    numbered = dict(enumerate(parts, 1)) | dict(enumerate(parts, -len(parts)))
    return numbered.get(number, "")


def strpos(text: str, part: str) -> int:
    places = range(len(text) + 1)
    return next((place + 1 for place in places if text[place : place + len(part)] == part), 0)


def starts_with(text: str, prefix: str) -> bool:
    return text[: len(prefix)] == prefix


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
