"""ALTER STREAM: a column to add, to rename or to drop, another RETAIN, AHEAD, SLACK or LEAD."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot.tokenizer_core import TokenType

from datastem.constants import Constant
from datastem.instants import DAY
from datastem.schema import Column
from datastem.types import BOOLEAN, TEXT, Kind, Type
from querystem.expressions import Literal
from querystem.language.errors import BindProblem, NotYet, Span, SyntaxProblem, TypeProblem
from querystem.language.tokens.durations import read_duration
from querystem.language.tokens.literals import convert, decimal_literal, number
from querystem.language.tokens.scan import TokenReader, span_of

MAX_DEFAULT_BYTES = 100

# How long batches may use the former name of a column.
ACCEPT_FORMER = 90 * DAY

_FORMS = (
    "write ALTER STREAM name ADD COLUMN column TYPE, RENAME COLUMN column TO name, DROP COLUMN "
    "column, or SET RETAIN, AHEAD, SLACK or LEAD duration"
)
_CONSTANT = "a default is a number, 'text', TRUE, FALSE, NULL, DATE '…' or TIMESTAMP '…'"

# Reads the type of a column; adds a note if it is spelled as in other systems.
ReadType = Callable[[TokenReader], Type]


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A column to add; `column` has its default."""

    column: Column


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Another name for a column. Batches may use the former one for `accept` microseconds."""

    column: str
    to: str
    accept: int = ACCEPT_FORMER


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column to drop; with `cascade`, what reads it ends. Batches may bring it for `accept`
    microseconds."""

    column: str
    cascade: bool = False
    accept: int = ACCEPT_FORMER


@dataclass(frozen=True, slots=True)
class SetRetain:
    """Another retention in microseconds; with `cascade`, registrations that reach further end."""

    retain: int
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class SetAhead:
    """Another AHEAD in microseconds."""

    ahead: int


@dataclass(frozen=True, slots=True)
class SetSlack:
    """Another SLACK in microseconds."""

    slack: int


@dataclass(frozen=True, slots=True)
class SetLead:
    """Another LEAD in microseconds."""

    lead: int


Alteration = AddColumn | RenameColumn | DropColumn | SetRetain | SetAhead | SetSlack | SetLead


@dataclass(frozen=True, slots=True)
class AlterStream:
    """The change of the stream `name`, which stands at `span`."""

    name: str
    span: Span
    change: Alteration
    notes: tuple[str, ...] = ()


def parse_alter(
    reader: TokenReader, read_type: ReadType, check_retain: Callable[[int, Span], None]
) -> AlterStream:
    """Return the change that stands after ALTER. `check_retain` refuses a RETAIN that no stream may
    have."""
    reader.need("STREAM", hint="only streams can be altered; a view is dropped and created again")
    name, span = reader.need_name("the name of the stream")
    if reader.take("ADD"):
        change: Alteration = _add_column(reader, read_type)
    elif reader.take("SET"):
        change = _set_option(reader, check_retain)
    elif reader.take("RENAME"):
        change = _rename_column(reader)
    elif reader.take("DROP"):
        change = _drop_column(reader)
    else:
        reader.fail("expected ADD COLUMN, RENAME COLUMN, DROP COLUMN or SET", hint=_FORMS)
    reader.finish(hint=_FORMS)
    return AlterStream(name, span, change)


def _set_option(
    reader: TokenReader, check_retain: Callable[[int, Span], None]
) -> SetRetain | SetAhead | SetSlack | SetLead:
    if span := reader.take("RETAIN"):
        retain = read_duration(reader)
        check_retain(retain, span)
        return SetRetain(retain, reader.take("CASCADE") is not None)
    if reader.take("AHEAD"):
        return SetAhead(read_duration(reader))
    if reader.take("SLACK"):
        return SetSlack(read_duration(reader))
    if reader.take("LEAD"):
        return SetLead(read_duration(reader))
    if span := reader.take("CLOCK"):
        raise NotYet(
            "ALTER STREAM … SET CLOCK",
            span,
            hint="create another stream with ORDERED BY … CLOCK, publish the rows to it, and give"
            " it to the queries with CREATE VIEW or by registering them with replace",
        )
    raise SyntaxProblem(
        "only RETAIN, AHEAD, SLACK and LEAD can be set",
        reader.span,
        hint=_FORMS,
        reason="BAD_OPTION",
    )


def _rename_column(reader: TokenReader) -> RenameColumn:
    if span := reader.take("TO"):
        raise SyntaxProblem(
            "a stream can't be renamed: tokens, digests and grants name it",
            span,
            hint="create a view of the other name: CREATE VIEW name AS SELECT * FROM stream",
            reason="NOT_SUPPORTED",
        )
    reader.take("COLUMN")
    column, _ = reader.need_name("the name of the column")
    reader.need("TO", hint="write RENAME COLUMN column TO name")
    to = _new_name(reader)
    return RenameColumn(column, to, _accepted(reader))


def _drop_column(reader: TokenReader) -> DropColumn:
    reader.take("COLUMN")
    column, _ = reader.need_name("the name of the column")
    cascade = reader.take("CASCADE") is not None
    return DropColumn(column, cascade, _accepted(reader))


def _accepted(reader: TokenReader) -> int:
    """Return for how long batches may use the former name."""
    if not reader.take("ACCEPT"):
        return ACCEPT_FORMER
    for word in ("OLD", "NAME", "FOR"):
        reader.need(word, hint="write ACCEPT OLD NAME FOR duration")
    return read_duration(reader)


def _new_name(reader: TokenReader) -> str:
    name, span = reader.need_name("the name of the column")
    if name in ("row_id", "ts"):
        raise BindProblem(f"{name} can't be declared: every row has one", span)
    return name


def _add_column(reader: TokenReader, read_type: ReadType) -> AddColumn:
    reader.take("COLUMN")
    name = _new_name(reader)
    type_ = read_type(reader)
    default = _default(reader, type_) if reader.take("DEFAULT") else None
    for words, reason in _REFUSED.items():
        if refused := reader.take(*words):
            raise SyntaxProblem(
                f"an added column can't be {' '.join(words)}: {reason}",
                refused,
                hint="create another stream, and publish the rows to it",
                reason="NOT_SUPPORTED",
            )
    return AddColumn(Column(name, type_, default=default))


_NO_VALUE = "earlier rows, and batches of publishers that do not know it, have no value for it"
_REFUSED = {
    ("NOT", "NULL"): _NO_VALUE,
    ("PRIMARY", "KEY"): "the key of earlier rows would change",
    ("KEY",): "the key of earlier rows would change",
    ("UNIQUE",): "no column is; a stream may have a KEY from the beginning",
    ("ORDERED", "BY"): "the time of earlier rows would change",
}


def _default(reader: TokenReader, type_: Type) -> Constant:
    """Return the constant after DEFAULT in the type of its column."""
    literal, span = _constant(reader, type_)
    converted = convert(literal, type_, span)
    # A text that is no number would be NULL.
    from_text = literal.type.kind is Kind.TEXT and type_.kind not in _WRITTEN_AS_TEXT
    if converted is None or (from_text and literal.value is not None):
        raise TypeProblem(f"the default is {literal.type}, and the column {type_}", span)
    value = converted.value
    if isinstance(value, str) and len(value.encode()) > MAX_DEFAULT_BYTES:
        raise BindProblem(
            f"a default of {len(value.encode()):,} bytes; the limit is {MAX_DEFAULT_BYTES}",
            span,
            hint="every earlier row has the default: choose a short one",
            reason="BAD_OPTION",
        )
    return value


_WRITTEN_AS_TEXT = (Kind.TEXT, Kind.TIMESTAMP, Kind.DATE)


def _constant(reader: TokenReader, type_: Type) -> tuple[Literal, Span]:
    span = reader.span
    for word, value in (("NULL", None), ("TRUE", True), ("FALSE", False)):
        if reader.take(word):
            return Literal(value, type_ if value is None else BOOLEAN), span
    for word in ("DATE", "TIMESTAMP"):
        if reader.sees(word):
            reader.skip()
            break
    if token := reader.take_kind(TokenType.STRING):
        return Literal(token.text, TEXT), span.to(span_of(token))
    negative = reader.take("-") is not None
    token = reader.take_kind(TokenType.NUMBER)
    if token is None:
        raise SyntaxProblem(
            "expected a constant after DEFAULT", span, hint=_CONSTANT, reason="BAD_OPTION"
        )
    place = span.to(span_of(token))
    typed = number(token.text, place, negative)
    # A number with a point is a DOUBLE, but exact beside a DECIMAL.
    if type_.kind is Kind.DECIMAL and typed.number is not None:
        return decimal_literal(typed.number, place), place
    assert isinstance(typed.node, Literal)
    return typed.node, place
