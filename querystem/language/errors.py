"""The errors of texts: what is wrong, and at which place.

    QueryError
    ├── SyntaxProblem         SYNTAX, TEXT_TOO_LONG, TOO_MANY_TERMS, NESTED_TOO_DEEP,
    │   │                     WRONG_STATEMENT, NOT_SUPPORTED
    │   └── NotYet            NOT_YET
    ├── BindProblem           BAD_NAME, DUPLICATE_NAME, BAD_OPTION, TOO_MANY_COLUMNS, NOT_GROUPED,
    │   │                     NOT_SELECTED, MISPLACED_AGGREGATE, AMBIGUOUS_NAME, UNUSED_NAME,
    │   │                     TOO_MANY_REFERENCES, MANY_ROWS, BAD_LOOKUP
    │   ├── UnknownStream     UNKNOWN_STREAM
    │   ├── UnknownColumn     UNKNOWN_COLUMN
    │   ├── UnknownFunction   UNKNOWN_FUNCTION
    │   └── UnknownParameter  UNKNOWN_PARAMETER
    ├── TypeProblem           TYPE_MISMATCH, BAD_LITERAL, BAD_TYPE, BAD_VALUE
    ├── WindowProblem         BAD_WINDOW, WINDOW_PAST_RETENTION, MIXED_CLOCKS
    └── RefreshProblem        BAD_REFRESH

Reasons are stable names for programs; messages are for people and may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_EXCERPT_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Span:
    """The characters `[start, end)` of a text."""

    start: int
    end: int

    def to(self, end: Span) -> Span:
        """Return the span from this one to another, which may stand before it."""
        return Span(min(self.start, end.start), max(self.end, end.end))


class QueryError(Exception):
    """The refusal of a text. `line` and `column` count from 1; they are 0 if no place is wrong."""

    default_reason = "QUERY"

    def __init__(
        self,
        message: str,
        span: Span | None = None,
        *,
        hint: str = "",
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.hint = hint
        self.reason = reason or self.default_reason
        self.text = ""

    @property
    def line(self) -> int:
        if self.span is None:
            return 0
        return self.text.count("\n", 0, self.span.start) + 1

    @property
    def column(self) -> int:
        if self.span is None:
            return 0
        return self.span.start - self._line_start + 1

    @property
    def excerpt(self) -> str:
        """The line of the text with the place underlined, clipped if it is long."""
        if self.span is None:
            return ""
        stop = self.text.find("\n", self.span.start)
        line = self.text[self._line_start : stop if stop >= 0 else len(self.text)]
        at = self.column - 1
        clip = max(0, at - _EXCERPT_WIDTH // 2) if len(line) > _EXCERPT_WIDTH else 0
        visible = line[clip : clip + _EXCERPT_WIDTH].translate(_BLANKS).rstrip()
        width = min(self.span.end - self.span.start, clip + _EXCERPT_WIDTH - at, len(line) - at)
        return f"{visible}\n{' ' * (at - clip)}{'^' * max(1, width)}"

    def __str__(self) -> str:
        parts = [f"line {self.line}, column {self.column}: " if self.span else "", self.message]
        if self.span:
            parts += ["\n  ", self.excerpt.replace("\n", "\n  ")]
        if self.hint:
            parts += ["\nhint: ", self.hint]
        return "".join(parts)

    @property
    def _line_start(self) -> int:
        assert self.span is not None
        return self.text.rfind("\n", 0, self.span.start) + 1


class SyntaxProblem(QueryError):
    default_reason = "SYNTAX"


class NotYet(SyntaxProblem):
    """The text uses a part of the language that this version does not have; the hint is how to
    write it instead."""

    default_reason = "NOT_YET"

    def __init__(self, what: str, span: Span | None, *, hint: str) -> None:
        super().__init__(f"{what}: not yet supported", span, hint=hint)


class BindProblem(QueryError):
    default_reason = "BAD_NAME"


class UnknownStream(BindProblem):
    default_reason = "UNKNOWN_STREAM"


class UnknownColumn(BindProblem):
    default_reason = "UNKNOWN_COLUMN"


class UnknownFunction(BindProblem):
    default_reason = "UNKNOWN_FUNCTION"


class UnknownParameter(BindProblem):
    default_reason = "UNKNOWN_PARAMETER"


class TypeProblem(QueryError):
    default_reason = "TYPE_MISMATCH"


class WindowProblem(QueryError):
    default_reason = "BAD_WINDOW"


class RefreshProblem(QueryError):
    default_reason = "BAD_REFRESH"


@contextmanager
def located(text: str) -> Iterator[None]:
    """Give errors that leave the `with` block the text that their spans point into."""
    try:
        yield
    except QueryError as problem:
        problem.text = problem.text or text
        raise
    except RecursionError:
        deep = SyntaxProblem(
            "the text is nested too deeply",
            hint="split the expression, or flatten its parentheses",
            reason="NESTED_TOO_DEEP",
        )
        raise deep from None


_BLANKS = {ord("\t"): " ", ord("\r"): " "}
