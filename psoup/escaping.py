"""Texts made safe for terminals and logs: no character moves the cursor or forges a line."""

from __future__ import annotations

import re

# Control characters, marks that change the direction of a text, line separators, and halves of
# surrogate pairs, which have no UTF-8.
_SPECIAL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def escaped(text: str, *, lines: bool = False) -> str:
    r"""Return a text with special characters written as \n, \x1b or \u202e.

    With `lines` it may have several lines, and tabs.
    """

    def escape(match: re.Match[str]) -> str:
        character = match[0]
        if lines and character in "\n\t":
            return character
        code = ord(character)
        return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")

    return _SPECIAL.sub(escape, text)


def escaped_json(text: str) -> str:
    r"""Return JSON of one line with all special characters inside its texts as \u001b."""
    # `json.dumps` has escaped newlines and other controls already, so the rest is inside of texts.
    return _SPECIAL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
