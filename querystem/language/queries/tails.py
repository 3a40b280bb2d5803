"""The windows and each REFRESH of a text. They follow the clauses of SQL, and are read when every
`:name` in them, a number or an instant, has its value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias

from sqlglot.tokenizer_core import Token, TokenType

from datastem.instants import format_instant, to_micros
from datastem.schema import StreamSchema
from querystem.expressions import Literal
from querystem.language.errors import RefreshProblem, Span, TypeProblem
from querystem.language.queries.drafts import DraftEvery, DraftOn, DraftWindow
from querystem.language.queries.validities import with_validities
from querystem.language.syntax.window_checks import (
    check_clocks,
    check_over,
    check_retention,
    check_trigger,
    check_validities,
    check_versions,
)
from querystem.language.syntax.windows import default_window, read_window
from querystem.language.tokens.durations import read_duration
from querystem.language.tokens.scan import TokenReader, span_of
from querystem.legs import Leg
from querystem.query import Query
from querystem.refresh import (
    PartKind,
    Refresh,
    RefreshAny,
    RefreshEvery,
    RefreshOn,
    points_of,
    triggers_of,
)
from results.window import Window


@dataclass(frozen=True, slots=True)
class WindowText:
    """The window of a reference to a stream, or over a query in FROM, as its tokens; without a
    window there are none. `place` is that of the reference. A window that is written WINDOW(…) ends
    at `end`. A reference whose rows are looked up has no window: its rows are looked up for those
    of the references `beside` it, whose windows have these numbers. A window inside a view is not
    in the text itself: the reference to the view is at `view`."""

    schema: StreamSchema
    tokens: Sequence[Token]
    place: Span
    end: int | None = None
    beside: Sequence[int] = ()
    view: Span | None = None

    def read(self, end: int, literals: Mapping[str, Literal]) -> Window:
        """Return the window, in a text of length `end`; raise QueryError."""
        if self.end is not None:
            tokens = _filled(self.tokens, literals)
            return read_window(tokens, self.end, self.schema, of_item=True)
        if not self.tokens:
            return default_window(self.schema)
        return read_window(_filled(self.tokens, literals), end, self.schema)

    @property
    def spans(self) -> list[Span]:
        """The place of the window in the text, or of the view that it is in."""
        if self.view is not None:
            return [self.view] if self.tokens else []
        return [span_of(token) for token in (*self.tokens[:1], *self.tokens[-1:])]


@dataclass(frozen=True, slots=True)
class RefreshText:
    """A part of a REFRESH at a place, in a text that goes on, or ends, at `end`: the tokens of its
    `period`, or the stream whose rows are its `trigger`."""

    span: Span
    end: int
    period: Sequence[Token] = ()
    trigger: StreamSchema | None = None

    def read(
        self, draft: RefreshEvery | RefreshOn, literals: Mapping[str, Literal]
    ) -> RefreshEvery | RefreshOn:
        """Return the part of a REFRESH that a draft will be; raise QueryError."""
        if isinstance(draft, RefreshOn):
            return RefreshOn(draft.stream, draft.where)
        return read_every(_filled(self.period, literals), self.end)


@dataclass(frozen=True, slots=True)
class Tail:
    """The windows of a text of length `end`, of its references to streams and over the queries in
    its FROM, and each REFRESH in it; `names` says where their parameters stand."""

    windows: Sequence[WindowText]
    refreshes: Sequence[RefreshText]
    end: int
    names: Mapping[str, Span]

    @classmethod
    def of(cls, windows: Sequence[WindowText], refreshes: Sequence[RefreshText], end: int) -> Tail:
        names: dict[str, Span] = {}
        periods = [refresh.period for refresh in refreshes]
        for tokens in (*(window.tokens for window in windows), *periods):
            for colon, name in zip(tokens, tokens[1:], strict=False):
                if _is_parameter(colon, name):
                    names.setdefault(name.text, span_of(colon).to(span_of(name)))
        return cls(windows, refreshes, end, names)

    def fill(self, draft: Query, literals: Mapping[str, Literal]) -> Query:
        """Return the query with its windows and its periods, given values for their parameters;
        raise QueryError."""

        def read(refresh: Refresh) -> Refresh:
            drafts = points_of(refresh)
            parts = tuple(
                self._text(draft_part).read(draft_part, literals) for draft_part in drafts
            )
            return RefreshAny(parts) if isinstance(refresh, RefreshAny) else parts[0]

        windows = [text.read(self.end, literals) for text in self.windows]
        query = with_tails(draft, lambda window: windows[window_number(window)], read)
        legs = [window_number(leg.window) for leg in draft.legs]
        self._check_windows(draft, query, windows, legs)
        texts = [self.windows[number] for number in legs]
        query = with_validities(query, [text.schema for text in texts])
        if texts:
            check_validities(query, texts[0].place.to(texts[-1].place))
        check_clocks([text.schema for text in texts], query.moving, [text.place for text in texts])
        self._check_triggers(draft, query, [text.schema for text in texts])
        return query

    def _text(self, draft: Refresh) -> RefreshText:
        assert isinstance(draft, DraftEvery | DraftOn), "REFRESH is read once"
        return self.refreshes[draft.number]

    def _check_windows(
        self, draft: Query, query: Query, windows: Sequence[Window], legs: Sequence[int]
    ) -> None:
        """Refuse windows that no reference, or no query in FROM, may have; `legs` has the number of
        each leg's window."""
        for number, (text, window) in enumerate(zip(self.windows, windows, strict=True)):
            if number not in legs:
                check_over(window, text.place)
            elif (span := self._span(text, legs.index(number), draft)) is not None:
                period = query.period_of(legs.index(number))
                check_retention(window, text.schema, span, period)
            for beside in text.beside:
                period = query.period_of(legs.index(beside))
                check_versions(windows[beside], text.schema, text.place, period)

    def _check_triggers(self, draft: Query, query: Query, schemas: Sequence[StreamSchema]) -> None:
        """Refuse rows with arrival time that refresh what goes by event time."""
        for written, part in zip(draft.refreshed_parts, query.refreshed_parts, strict=True):
            texts = [self._text(trigger) for trigger in triggers_of(written.refresh)]
            inside = [schemas[number] for number in part.legs]
            timed = [
                (moving, schema)
                for moving, schema in zip(part.moving, inside, strict=True)
                if not schema.now_is_clock
            ]
            counting = [schema for moves, schema in timed if moves or len(timed) == len(inside)]
            for schema, text in itertools.product(counting, texts):
                assert text.trigger is not None
                check_trigger(schema, text.trigger, text.span)

    def _span(self, text: WindowText, leg: int, draft: Query) -> Span | None:
        """Return the place of a leg's window with each REFRESH that sets it back."""
        around = [part for part in draft.refreshed_parts if leg in part.legs]
        outside = [part for part in around if part.kind is not PartKind.LEG]
        spans = [self._text(points_of(part.refresh)[0]).span for part in outside]
        spans = sorted([*text.spans, *spans], key=lambda span: span.start)
        return spans[0].to(spans[-1]) if spans else None


def window_number(window: Window) -> int:
    """Return the number of a window that is not read yet."""
    assert isinstance(window, DraftWindow), "windows are read once"
    return window.number


# ---- all windows and REFRESH of a query

_WindowChange: TypeAlias = Callable[[Window], Window]
_RefreshChange: TypeAlias = Callable[[Refresh], Refresh]


def with_tails(query: Query, window: _WindowChange, refresh: _RefreshChange) -> Query:
    """Return the query with all its windows, those over inner queries too, and each REFRESH
    changed."""

    def leg_with_tail(leg: Leg) -> Leg:
        changed = None if leg.refresh is None else refresh(leg.refresh)
        return replace(leg, window=window(leg.window), refresh=changed)

    changed = query.with_parts(leg_with_tail, lambda inner: with_tails(inner, window, refresh))
    return replace(
        changed,
        over=None if query.over is None else window(query.over),
        refresh=None if query.refresh is None else refresh(query.refresh),
    )


def _is_parameter(colon: Token, name: Token) -> bool:
    joined = colon.end + 1 == name.start
    return colon.text == ":" and name.token_type == TokenType.IDENTIFIER and joined


def _filled(tokens: Sequence[Token], literals: Mapping[str, Literal]) -> list[Token]:
    """Return the tokens with a constant in the place of each parameter."""
    filled: list[Token] = []
    for token in tokens:
        if filled and _is_parameter(filled[-1], token):
            filled.append(_constant(filled.pop(), token, literals[token.text]))
        else:
            filled.append(token)
    return filled


def _constant(colon: Token, name: Token, literal: Literal) -> Token:
    kind, text = TokenType.STRING, ""
    match literal.value:
        case bool() | None:
            raise _unfit(colon, name, literal, "it takes a number or an instant")
        case int() | float() | Decimal() as value:
            if not math.isfinite(value) or value < 0:
                raise _unfit(colon, name, literal, "it takes a number from 0")
            exact = Decimal(repr(value) if isinstance(value, float) else value)
            kind, text = TokenType.NUMBER, format(exact, "f")
        case datetime() as value:
            text = format_instant(to_micros(value))
        case date() as value:
            text = value.isoformat()
        case str() as value:
            text = value
    return Token(kind, text, colon.line, colon.col, colon.start, name.end)


def _unfit(colon: Token, name: Token, literal: Literal, hint: str) -> TypeProblem:
    written = "NULL" if literal.value is None else str(literal.value)
    span = span_of(colon).to(span_of(name))
    return TypeProblem(
        f":{name.text} is {written}, which no window takes", span, hint=hint, reason="BAD_VALUE"
    )


_REFRESH_LAST = "REFRESH stands last, after the window"


def read_every(tokens: Sequence[Token], end: int) -> RefreshEvery:
    """Return the REFRESH EVERY of the tokens after these words: a period, and the offset of its
    points."""
    reader = TokenReader(tokens, end)
    span = reader.span
    period = read_duration(reader)
    offset = read_duration(reader) if reader.take("OFFSET") else 0
    reader.finish(hint=_REFRESH_LAST)
    if period == 0:
        raise RefreshProblem(
            "REFRESH EVERY 0 has no points", span, hint="without REFRESH the answer is always fresh"
        )
    return RefreshEvery(period, offset % period)
