"""Checks of texts from outside, made before they are used.

JSON can carry a lone surrogate (`"\\ud800"`), which no file, column or message can hold: it has no
UTF-8. And a control character in a name reaches terminals and logs. So names are checked here
wherever they enter, whether a request, a key, a JWT or a certificate brings them.
"""

from __future__ import annotations

import re

NAME_BYTES = 256

# Control characters (C0, DEL, C1), the separators that end a line, and surrogates.
_NOT_IN_NAMES = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def is_encodable(text: str) -> bool:
    """Return True if a text has a UTF-8 form, so that it can be stored and sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_printable_name(name: str) -> bool:
    """Return True if a text has only characters that a name may have."""
    return _NOT_IN_NAMES.search(name) is None


def is_name(value: object, max_bytes: int = NAME_BYTES) -> bool:
    """Return True if a value is a name: a text of 1 to `max_bytes` bytes of such characters."""
    if not isinstance(value, str) or not value or not is_printable_name(value):
        return False
    return len(value.encode()) <= max_bytes


def escaped(text: str) -> str:
    """Write characters that a name may not have as escapes, so that a line stays one line."""
    return _NOT_IN_NAMES.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
