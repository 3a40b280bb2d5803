"""The errors of this package.

DataError
├── RowError     a batch that is refused; the publisher has to correct it
├── DecodeError  a payload in the log that is not what was accepted
└── TooMuchText  an expression makes more text than fits in memory
"""

from __future__ import annotations


class DataError(Exception):
    """The base of all errors of this package."""


class RowError(DataError):
    """A batch is refused whole. `row` counts from 0, and is -1 if no single row is to blame."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        row: int = -1,
        field: str = "",
        expected: str = "",
        got: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.row = row
        self.field = field
        self.expected = expected
        self.got = got
        self.hint = hint


class DecodeError(DataError):
    """A payload does not decode. Its row ids stay empty; nothing else is affected."""


class TooMuchText(DataError):
    """The texts that an expression makes for many rows take more memory than they may."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(
            f"an expression makes {count:,} bytes of text; at most {limit:,} are made at once"
        )
        self.count = count
        self.limit = limit
