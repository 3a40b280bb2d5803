"""LIKE patterns: one way to write each, with a backslash before %, _ and itself only."""

from __future__ import annotations

from querystem.language.errors import Span, TypeProblem

_SPECIAL = "%_\\"


def like_pattern(pattern: str, escape: str = "\\", span: Span | None = None) -> str:
    """The pattern with backslash as its escape. Raises TypeProblem where it ends in an escape."""
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise TypeProblem(
                    f"the pattern ends with {escape}, which escapes nothing",
                    span,
                    hint=f"write {escape * 2} for the character itself",
                    reason="BAD_LITERAL",
                )
            parts.append("\\" + escaped if escaped in _SPECIAL else escaped)
        else:
            parts.append("\\\\" if character == "\\" else character)
    return "".join(parts)
