"""The time of a stream in CREATE STREAM: its event-time column, how far rows take NOW, and when
they are valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datastem.instants import HOUR, MINUTE
from datastem.schema import Column, StreamSchema, Validity
from datastem.types import Kind
from querystem.language.errors import BindProblem, NotYet, Span, TypeProblem
from querystem.language.tokens.durations import read_duration, write_duration
from querystem.language.tokens.names import suggest, write_name
from querystem.language.tokens.scan import TokenReader

# How far past the stamp of its arrival a row takes NOW, if the statement does not say.
_LEAD = MINUTE


@dataclass(frozen=True, slots=True)
class EventTime:
    """What stands after ORDERED BY: a column, and CLOCK or a SLACK in microseconds."""

    column: str
    by_clock: bool = False
    slack: int = 0


def read_event_time(reader: TokenReader, columns: Sequence[tuple[Column, Span]]) -> EventTime:
    """Return what stands after ORDERED BY."""
    name, _ = _instant_column(reader, columns, "ORDERED BY", "the column with the event time")
    by_clock = reader.take("CLOCK") is not None
    slack_span = reader.take("SLACK")
    if by_clock and slack_span:
        raise _refused(
            "SLACK sets back the NOW of rows, and with CLOCK NOW is the clock", slack_span
        )
    return EventTime(name, by_clock, read_duration(reader) if slack_span else 0)


def _instant_column(
    reader: TokenReader, columns: Sequence[tuple[Column, Span]], clause: str, what: str
) -> tuple[str, Span]:
    """Return the TIMESTAMP column that a clause names, and its place."""
    name, span = reader.need_name(what)
    types = {column.name: column.type for column, _ in columns}
    if name not in types:
        raise BindProblem(
            f"{clause} {name}: there is no such column",
            span,
            hint=suggest(name, types),
            reason="UNKNOWN_COLUMN",
        )
    if types[name].kind is not Kind.TIMESTAMP:
        raise TypeProblem(f"{clause} needs a TIMESTAMP; {name} is {types[name]}", span)
    return name, span


def read_validity(reader: TokenReader, columns: Sequence[tuple[Column, Span]]) -> Validity:
    """Return what stands after VALID."""
    reader.need("FROM", hint=_VALID)
    starts, _ = _instant_column(reader, columns, "VALID FROM", "the column with the first instant")
    reader.need("UNTIL", hint=_VALID)
    ends, span = _instant_column(reader, columns, "UNTIL", "the column with the end")
    if starts == ends:
        raise _refused("a row that ends when it begins is never valid", span, _VALID)
    return Validity(starts, ends)


_VALID = "write VALID FROM column UNTIL column"


def check_validity(
    has_event_time: bool, durations: Mapping[str, int], spans: Mapping[str, Span]
) -> None:
    """Refuse the options that a stream with a validity does not take; `spans` has the places of
    what is written."""
    if has_event_time:
        raise NotYet(
            "VALID with ORDERED BY",
            spans["ORDERED BY"],
            hint="leave ORDERED BY out: windows go by the validity, and NOW is the clock",
        )
    for word in ("AHEAD", "LEAD"):
        if word in durations:
            raise _refused(f"{word} limits the ts of rows, not when they are valid", spans[word])


def lead_of(
    time: EventTime | None, is_keyed: bool, durations: Mapping[str, int], span: Span | None
) -> int | None:
    """Return how far past its stamp a row takes NOW; None if AHEAD alone limits it. LEAD, if it is
    written, stands at `span`."""
    moves_now = time is not None and not time.by_clock
    if "LEAD" in durations:
        if not moves_now:
            raise _refused("LEAD limits how far rows take NOW, and here NOW is the clock", span)
        return durations["LEAD"]
    # A row that was allowed far ahead on purpose, a forecast for instance, takes NOW along. So does
    # a row of a stream key, so that copies of current rows need no waiting rows.
    return _LEAD if moves_now and not is_keyed and "AHEAD" not in durations else None


def time_sql(schema: StreamSchema) -> list[str]:
    """Return the lines of CREATE STREAM that say what its time is, except AHEAD and LEAD."""
    if schema.validity is not None:
        starts, ends = write_name(schema.validity.starts), write_name(schema.validity.ends)
        return [f"VALID FROM {starts} UNTIL {ends}"]
    if schema.ts_is_stamp:
        return []
    line = f"ORDERED BY {write_name(schema.event_time)}"
    if schema.by_clock:
        line += " CLOCK"
    if schema.slack:
        line += f" SLACK {write_duration(schema.slack)}"
    return [line]


def limits_sql(schema: StreamSchema) -> list[str]:
    """Return the lines of CREATE STREAM that say how far rows may be ahead, and take NOW."""
    # Written also if it is the default: then it says that there is no other limit.
    is_limit = not (schema.now_is_clock or schema.key) and schema.lead is None
    lines = []
    if is_limit or schema.ahead != HOUR:
        lines.append(f"AHEAD {write_duration(schema.ahead)}")
    is_default = schema.lead == _LEAD and not schema.key and not lines
    if schema.lead is not None and not is_default:
        lines.append(f"LEAD {write_duration(schema.lead)}")
    return lines


def _refused(message: str, span: Span | None, hint: str = "leave it out") -> BindProblem:
    return BindProblem(message, span, hint=hint, reason="BAD_OPTION")
