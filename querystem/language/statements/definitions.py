"""The statements that create, alter and drop streams, views, functions and row policies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot.tokenizer_core import TokenType

from datastem.instants import HOUR
from datastem.schema import Column, StreamSchema, Validity
from datastem.types import Type
from querystem.language.errors import BindProblem, Span, SyntaxProblem, located
from querystem.language.statements.alterations import AlterStream, parse_alter
from querystem.language.statements.erasures import EraseRows, parse_erase
from querystem.language.statements.functions import (
    CreateFunction,
    DropFunction,
    parse_drop_function,
    parse_function,
)
from querystem.language.statements.grants import GrantActions, parse_grant, read_grantee
from querystem.language.statements.stream_times import (
    EventTime,
    check_validity,
    lead_of,
    limits_sql,
    read_event_time,
    read_validity,
    time_sql,
)
from querystem.language.syntax.refusals import wrong_statement
from querystem.language.tokens.dialect import uncommented
from querystem.language.tokens.durations import read_duration, write_duration
from querystem.language.tokens.names import SYNONYMS, read_type, suggest, type_words, write_name
from querystem.language.tokens.scan import MAX_TEXT, TokenReader, scan, span_of
from querystem.views import Delivery, ViewDefinition

MAX_COLUMNS = 1000

_OPTIONS = (
    "after the columns come KEY (columns), ORDERED BY column or VALID FROM column UNTIL column, "
    "RETAIN, AHEAD and LEAD durations, SOURCE name"
)


@dataclass(frozen=True, slots=True)
class CreateStream:
    schema: StreamSchema
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateView:
    """A view to create: `text` is its query, which begins at `begin` of the statement."""

    name: str
    delivery: Delivery
    text: str
    begin: int


@dataclass(frozen=True, slots=True)
class DropStream:
    """A stream, or a view made with CREATE STREAM … AS, to drop; with `cascade` the views over it
    too."""

    name: str
    span: Span
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class DropView:
    """A view to drop, with `cascade` the views over it too."""

    name: str
    span: Span
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class CreatePolicy:
    """A policy to create on the stream named at `span`: `text` is its condition, which begins at
    `begin` of the statement, after a parenthesis."""

    name: str
    stream: str
    span: Span
    text: str
    begin: int


@dataclass(frozen=True, slots=True)
class DropPolicy:
    """A policy of a stream to drop."""

    name: str
    stream: str
    span: Span


Statement = (
    CreateStream
    | CreateView
    | CreateFunction
    | CreatePolicy
    | AlterStream
    | DropStream
    | DropView
    | DropFunction
    | DropPolicy
    | EraseRows
    | GrantActions
)


def parse_statement(
    text: str, *, max_columns: int = MAX_COLUMNS, max_text: int = MAX_TEXT
) -> Statement:
    """Return the definition that a text is; raise QueryError, which says how to register a
    SELECT."""
    with located(text):
        reader = TokenReader(scan(text, max_text), len(text))
        if reader.take("CREATE"):
            return _create(reader, text, max_columns)
        if reader.take("ALTER"):
            return _alter(reader, text)
        if reader.take("DROP"):
            return _drop(reader)
        if reader.take("ERASE"):
            return parse_erase(reader, text)
        if reader.take("GRANT"):
            return parse_grant(reader, revoked=False)
        if reader.take("REVOKE"):
            return parse_grant(reader, revoked=True)
        if reader.sees("SELECT") or reader.sees("WITH"):
            raise SyntaxProblem(
                "a query is registered, not defined",
                reader.span,
                hint="send it with Register",
                reason="WRONG_STATEMENT",
            )
        raise wrong_statement(reader)


def stream_sql(schema: StreamSchema) -> str:
    """Return the CREATE STREAM text that makes a schema; parsing it gives the schema again, though
    with its columns as if they had been there from the beginning."""
    schema = schema.labelled
    columns = ", ".join(f"{write_name(column.name)} {column.type}" for column in schema.columns)
    lines = [f"CREATE STREAM {write_name(schema.name)} ({columns})"]
    if schema.key:
        lines.append(f"KEY ({', '.join(map(write_name, schema.key))})")
    lines += time_sql(schema)
    if schema.retention is not None:
        lines.append(f"RETAIN {write_duration(schema.retention)}")
    lines += limits_sql(schema)
    if schema.source:
        lines.append(f"SOURCE {write_name(schema.source)}")
    if schema.source_owner:
        quoted = schema.source_owner.replace("'", "''")
        lines[-1] += f" OWNER '{quoted}'"
    return "\n    ".join(lines)


def _create(
    reader: TokenReader, text: str, max_columns: int
) -> CreateStream | CreateView | CreateFunction | CreatePolicy:
    delivery = next((word for word in _DELIVERIES if reader.take(word.value)), Delivery.PLAIN)
    if reader.take("VIEW"):
        name, _ = reader.need_name("the name of the view")
        return _view(reader, text, name, delivery)
    if delivery is not Delivery.PLAIN:
        reader.fail(f"expected VIEW after {delivery.value}", hint=_VIEW)
    if reader.take("POLICY"):
        return _policy(reader, text)
    if reader.take("FUNCTION"):
        return _function(reader, text)
    if not reader.take("STREAM"):
        reader.fail(
            "only streams, views, functions and policies can be created",
            hint=f"{_STREAM}, or {_VIEW[6:]}",
        )
    if reader.sees("IF", "NOT"):
        reader.fail("IF NOT EXISTS is not part of the language", hint="create the stream once")
    name, _ = reader.need_name("the name of the stream")
    if reader.sees("AS"):
        return _view(reader, text, name, Delivery.PLAIN)
    reader.need("(", hint=_STREAM)
    notes: dict[str, None] = {}
    columns = [_column(reader, text, notes)]
    while reader.take(","):
        columns.append(_column(reader, text, notes))
    reader.need(")", hint="columns are separated by commas")
    return _finish(reader, name, columns, max_columns, notes)


def _alter(reader: TokenReader, text: str) -> AlterStream:
    notes: dict[str, None] = {}
    statement = parse_alter(reader, lambda ahead: _type(ahead, text, notes), _check_retain)
    return replace(statement, notes=tuple(notes))


def _function(reader: TokenReader, text: str) -> CreateFunction:
    notes: dict[str, None] = {}
    statement = parse_function(reader, text, lambda ahead: _type(ahead, text, notes))
    return replace(statement, notes=tuple(notes))


_DELIVERIES = (Delivery.COMPLETE, Delivery.STREAMED)
_STREAM = "write CREATE STREAM name (column TYPE, …)"
_VIEW = "write CREATE VIEW name AS SELECT …"
_POLICY = "write CREATE POLICY name ON stream USING (condition)"


def _policy(reader: TokenReader, text: str) -> CreatePolicy:
    """Return the policy whose condition stands in parentheses after USING, the last of the
    statement."""
    name, _ = reader.need_name("the name of the policy")
    reader.need("ON", hint=_POLICY)
    stream, span = reader.need_name("the name of the stream")
    reader.need("USING", hint=_POLICY)
    begin = reader.need("(", hint=_POLICY).end
    depth, end = 1, begin
    while depth:
        if reader.token is None:
            reader.fail("the condition of the policy ends too early", hint=_POLICY)
        end, depth = reader.token.start, depth + reader.sees("(") - reader.sees(")")
        reader.skip()
    if not text[begin:end].strip():
        raise SyntaxProblem("expected a condition", Span(begin - 1, end + 1), hint=_POLICY)
    reader.finish(hint="a policy has one condition, in parentheses")
    return CreatePolicy(name, stream, span, text[begin:end], begin)


def policy_sql(name: str, stream: str, text: str) -> str:
    """Return the statement that makes a policy."""
    return f"CREATE POLICY {write_name(name)} ON {write_name(stream)} USING ({text})"


def _view(reader: TokenReader, text: str, name: str, delivery: Delivery) -> CreateView:
    """Return the view whose query stands after AS."""
    reader.need("AS", hint=_VIEW)
    if reader.token is None:
        reader.fail("expected a query after AS", hint=_VIEW)
    begin = reader.token.start
    while reader.token is not None:
        last = reader.skip()
    return CreateView(name, delivery, text[begin : last.end + 1], begin)


def view_sql(view: ViewDefinition, renames: Sequence[str] = ()) -> str:
    """Return the statement that makes a view; parsing it gives the view's query again. A comment
    names columns that have other names now."""
    word = f"{view.delivery.value} " if view.delivery is not Delivery.PLAIN else ""
    comment = f" /* renamed since: {', '.join(renames)} */" if renames else ""
    return f"CREATE {word}VIEW {write_name(view.name)} AS {view.text}{comment}"


def _column(reader: TokenReader, text: str, notes: dict[str, None]) -> tuple[Column, Span]:
    if reader.sees("PRIMARY", "KEY"):
        reader.fail("PRIMARY KEY is not part of the language", hint=_KEY_AFTER)
    name, span = reader.need_name("the name of a column")
    type_ = _type(reader, text, notes)
    if reader.sees("PRIMARY", "KEY"):
        reader.fail(
            "PRIMARY KEY is not part of the language",
            hint=f"write KEY ({write_name(name)}) after the columns",
        )
    if not (reader.sees(",") or reader.sees(")")):
        reader.fail(
            "a column has a name and a type",
            hint="there are no constraints or defaults; columns are separated by commas",
        )
    return Column(name, type_), span


_KEY_AFTER = "write KEY (column) after the columns"


def _type(reader: TokenReader, text: str, notes: dict[str, None]) -> Type:
    """Return the type of a column; add a note if it is spelled as in other systems."""
    token = reader.token
    if token is None or token.token_type != TokenType.VAR:
        reader.fail("expected the type of the column")
    tokens = [reader.skip()]
    if reader.sees("PRECISION"):
        tokens.append(reader.skip())
    if reader.sees("("):
        while not reader.sees(")"):
            tokens.append(reader.skip())
        tokens.append(reader.skip())
    written = uncommented(text, tokens)
    type_ = read_type(written, span_of(tokens[0]).to(span_of(tokens[-1])))
    if (spelling := type_words(written)) in SYNONYMS:
        notes[f"{spelling} is taken as {type_}"] = None
    return type_


def _finish(
    reader: TokenReader,
    name: str,
    columns: list[tuple[Column, Span]],
    max_columns: int,
    notes: Iterable[str],
) -> CreateStream:
    _check_names(columns, max_columns)
    time: EventTime | None = None
    validity: Validity | None = None
    spans: dict[str, Span] = {}
    key: tuple[str, ...] = ()
    source: tuple[str, str] | None = None
    durations: dict[str, int] = {}
    while reader.token is not None:
        if reader.sees("PRIMARY", "KEY"):
            reader.fail("PRIMARY KEY is not part of the language", hint=_KEY_AFTER)
        if word_span := reader.take("KEY"):
            if key:
                raise SyntaxProblem("KEY is given twice", word_span)
            key = _key(reader, columns)
            continue
        if word_span := reader.take("ORDERED", "BY"):
            if time is not None:
                raise SyntaxProblem("ORDERED BY is given twice", word_span)
            spans["ORDERED BY"], time = word_span, read_event_time(reader, columns)
            continue
        if word_span := reader.take("VALID"):
            if validity is not None:
                raise SyntaxProblem("VALID is given twice", word_span)
            validity = read_validity(reader, columns)
            continue
        if word_span := reader.take("SOURCE"):
            if source is not None:
                raise SyntaxProblem("SOURCE is given twice", word_span)
            source = _source(reader)
            continue
        option_span = reader.span
        word, micros = _duration_option(reader, durations)
        durations[word], spans[word] = micros, option_span
    retain = durations.get("RETAIN")
    if validity is not None:
        check_validity(time is not None, durations, spans)
        validity = replace(validity, retain=retain)
    ordered_by = None if time is None else time.column
    _check_ts(columns, ordered_by)
    schema = StreamSchema(
        name=name,
        columns=tuple(column for column, _ in columns),
        ordered_by=ordered_by,
        # Without a stream key nothing but the end of its validity decides how long a row is kept.
        retain=retain if validity is None or key else None,
        ahead=durations.get("AHEAD", HOUR),
        key=key,
        source=source[0] if source else "",
        source_owner=source[1] if source else "",
        by_clock=time is not None and time.by_clock,
        slack=0 if time is None else time.slack,
        lead=lead_of(time, bool(key), durations, spans.get("LEAD")),
        validity=validity,
    )
    return CreateStream(schema, (*notes, *_notes(schema)))


def _duration_option(reader: TokenReader, options: dict[str, int]) -> tuple[str, int]:
    word = next((word for word in ("RETAIN", "AHEAD", "LEAD") if reader.sees(word)), None)
    if word is None:
        reader.unexpected(hint=_OPTIONS)
    span = reader.need(word)
    if word in options:
        raise SyntaxProblem(f"{word} is given twice", span)
    micros = read_duration(reader)
    if word == "RETAIN":
        _check_retain(micros, span)
    return word, micros


def _check_retain(micros: int, span: Span) -> None:
    if micros == 0:
        raise BindProblem(
            "RETAIN 0 keeps nothing", span, hint="write RETAIN 30 DAYS", reason="BAD_OPTION"
        )


def _source(reader: TokenReader) -> tuple[str, str]:
    """Return the names of a source and of its owner, which is empty if none is given."""
    name, _ = reader.need_name("the name of the source")
    return name, read_grantee(reader, "owner") if reader.take("OWNER") else ""


def _check_names(columns: list[tuple[Column, Span]], max_columns: int) -> None:
    if len(columns) > max_columns:
        raise BindProblem(
            f"{len(columns)} columns; the limit is {max_columns}",
            columns[max_columns][1],
            reason="TOO_MANY_COLUMNS",
        )
    names: set[str] = set()
    for column, span in columns:
        if column.name == "row_id":
            raise BindProblem("row_id can't be declared: every row has one", span)
        if column.name in names:
            raise BindProblem(f"{column.name} is declared twice", span, reason="DUPLICATE_NAME")
        names.add(column.name)


def _key(reader: TokenReader, columns: list[tuple[Column, Span]]) -> tuple[str, ...]:
    reader.need("(", hint="write KEY (column), or KEY (column, column)")
    declared = [column.name for column, _ in columns]
    names: list[str] = []
    while True:
        name, span = reader.need_name("a column of the key")
        if name not in declared:
            raise BindProblem(
                f"KEY has {name}: there is no such column",
                span,
                hint=suggest(name, declared),
                reason="UNKNOWN_COLUMN",
            )
        if name in names:
            raise BindProblem(f"KEY has {name} twice", span, reason="DUPLICATE_NAME")
        names.append(name)
        if not reader.take(","):
            reader.need(")", hint="the columns of a key are separated by commas")
            return tuple(names)


def _check_ts(columns: list[tuple[Column, Span]], ordered_by: str | None) -> None:
    for column, span in columns:
        if column.name == "ts" and ordered_by != "ts":
            raise BindProblem(
                "ts is the time of every row; it can be declared only as the ORDERED BY column",
                span,
                hint="write ts TIMESTAMP … ORDERED BY ts, or give the column another name",
            )


def _notes(schema: StreamSchema) -> tuple[str, ...]:
    if schema.retention is None:
        return (f"{schema.name} has no RETAIN: its rows are kept for ever",)
    return ()


def _drop(reader: TokenReader) -> DropStream | DropView | DropFunction | DropPolicy:
    if reader.take("POLICY"):
        return _drop_policy(reader)
    if reader.take("FUNCTION"):
        return parse_drop_function(reader)
    view = reader.take("VIEW") is not None
    if not view and not reader.take("STREAM"):
        reader.fail(
            "only streams, views, functions and policies can be dropped",
            hint="write DROP STREAM name",
        )
    what = "VIEW" if view else "STREAM"
    name, span = reader.need_name(f"the name of the {what.lower()}")
    cascade = reader.take("CASCADE") is not None
    reader.finish(hint=f"DROP {what} takes one name, then CASCADE or nothing")
    return DropView(name, span, cascade) if view else DropStream(name, span, cascade)


def _drop_policy(reader: TokenReader) -> DropPolicy:
    name, _ = reader.need_name("the name of the policy")
    reader.need("ON", hint="write DROP POLICY name ON stream")
    stream, span = reader.need_name("the name of the stream")
    reader.finish(hint="DROP POLICY takes the name of the policy and that of its stream")
    return DropPolicy(name, stream, span)
