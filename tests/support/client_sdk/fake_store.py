"""A store in memory, small enough to trust: one handler for each call of the wire.

DuckDB evaluates the queries; windows are those the tests use. It keeps the contracts the SDK relies
on: client keys, sequences, pages, positions, atomic batches.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

from client_sdk import (
    Conflict,
    ErrorDetail,
    InvalidRequest,
    MockTransport,
    NotFound,
    PreconditionFailed,
    PsoupError,
    QueryProblem,
    RowConflict,
    RowProblem,
)
from client_sdk._wire.values import duration, from_rows, from_value, moment, timestamp
from psoup.v1 import psoup_pb2 as pb
from tests.support.client_sdk.fake_stream import FakeStream

_CREATE = re.compile(
    r"\s*CREATE STREAM (\w+)\s*\((.*?)\)\s*(?:KEY \((.*)\))?\s*(?:ORDERED BY (\w+))?\s*"
    r"(?:RETAIN (\d+) DAYS)?\s*",
    re.S | re.I,
)
_DROP = re.compile(r"\s*DROP STREAM (\w+)\s*", re.I)
_WINDOW = re.compile(r"\b(?:BEGIN NOW - (\d+) (SECOND|MINUTE|HOUR)S? END NOW|UNBOUNDED)\s*$", re.I)
_QUERY = re.compile(r"\s*SELECT (.*?) FROM (\w+)\b(.*)", re.S | re.I)
STAGES = ("plan", "window", "match", "take", "shape", "encode")
_ARROW_NAMES = {"bool": "BOOLEAN", "int64": "BIGINT", "double": "DOUBLE", "string": "TEXT"}


class FakeStore:
    def __init__(self, page: int = 1000) -> None:
        self.store_id = secrets.token_hex(16)
        self.limits = pb.Limits()
        self._streams: dict[str, FakeStream] = {}
        self._registrations: dict[bytes, pb.Registration] = {}
        self._marks: dict[tuple[str, str, str], bytes] = {}
        self._published: dict[
            tuple[tuple[str, str, str], int], tuple[bytes, pb.PublishResponse]
        ] = {}
        self._version = 0
        self._next_id = 1
        self._page = page

    def transport(self) -> MockTransport:
        names = [name for name in dir(self) if name[0].isupper()]
        handlers = {name: getattr(self, name) for name in names}
        return MockTransport(handlers, store_id=self.store_id)

    def _position(self) -> bytes:
        self._version += 1
        return b"%08d" % self._version

    def Status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        return pb.StatusResponse(store_id=self.store_id, limits=self.limits)

    # ---- streams

    def Define(self, request: pb.DefineRequest) -> pb.DefineResponse:
        if match := _CREATE.fullmatch(request.sql):
            return self._create(request.sql, *match.groups())
        if match := _DROP.fullmatch(request.sql):
            stream = self._stream(match[1].lower())
            del self._streams[stream.wire.name]
            return pb.DefineResponse(stream=stream.wire, position=self._position())
        detail = ErrorDetail(
            reason="SYNTAX", line=1, column=1, excerpt=f"{request.sql}\n^", hint="CREATE STREAM …"
        )
        raise QueryProblem("this is not a statement", detail=detail)

    def _create(
        self,
        sql: str,
        name: str,
        columns: str,
        key: str | None,
        ordered_by: str | None,
        days: str | None,
    ) -> pb.DefineResponse:
        if name.lower() in self._streams:
            detail = ErrorDetail(reason="STREAM_EXISTS")
            raise Conflict(f"there is a stream {name} already", detail=detail)
        pairs = re.findall(r"(\w+) (\w+(?:\(\d+, ?\d+\))?)", columns)
        wire = pb.Stream(
            name=name.lower(),
            id=self._next_id,
            columns=[pb.Column(name=column, type=kind.upper()) for column, kind in pairs],
            ordered_by=ordered_by or "",
            key=re.findall(r"\w+", key or ""),
            retain=duration(timedelta(days=int(days))) if days else None,
            ahead=duration(timedelta(hours=1)),
            sql=sql,
        )
        self._next_id += 1
        self._streams[wire.name] = FakeStream(wire)
        notes = [] if days else ["rows are kept for ever"]
        return pb.DefineResponse(stream=wire, position=self._position(), notes=notes)

    def _stream(self, name: str) -> FakeStream:
        if name.lower() not in self._streams:
            detail = ErrorDetail(reason="UNKNOWN_STREAM", got=name)
            raise NotFound(f"there is no stream {name}", detail=detail)
        return self._streams[name.lower()]

    def ListStreams(self, request: pb.ListStreamsRequest) -> pb.ListStreamsResponse:
        return pb.ListStreamsResponse(streams=[stream.wire for stream in self._streams.values()])

    def DescribeStream(self, request: pb.DescribeStreamRequest) -> pb.Stream:
        stream = self._stream(request.name)
        if stream.now is not None:
            stream.wire.now.CopyFrom(timestamp(stream.now))
        return stream.wire

    # ---- registrations

    def Register(self, request: pb.RegisterRequest) -> pb.RegisterResponse:
        for existing in self._registrations.values():
            is_same_key = (
                existing.owner == _owner(request) and existing.client_key == request.client_key
            )
            if is_same_key and request.client_key:
                return self._register_again(existing, request)
        wire = pb.Registration(
            handle=secrets.token_bytes(16),
            owner=_owner(request),
            client_key=request.client_key,
            sql=request.sql,
            parameters=request.parameters,
            lease=request.lease,
            position=self._position(),
            registered_at=timestamp(datetime.now(UTC)),
        )
        _, columns = self._evaluate(wire, "", None)
        wire.columns.extend(columns)
        wire.stream = self._parts(wire.sql)[1]
        self._registrations[wire.handle] = wire
        return pb.RegisterResponse(
            handle=wire.handle, position=wire.position, created=True, columns=columns
        )

    def _register_again(
        self, existing: pb.Registration, request: pb.RegisterRequest
    ) -> pb.RegisterResponse:
        if existing.sql != request.sql or existing.parameters != request.parameters:
            if request.replace:
                return self._replace(existing, request)
            detail = ErrorDetail(reason="CLIENT_KEY_TAKEN", got=request.client_key)
            raise Conflict("the key belongs to another query", detail=detail)
        return pb.RegisterResponse(
            handle=existing.handle, position=existing.position, columns=existing.columns
        )

    def _replace(
        self, existing: pb.Registration, request: pb.RegisterRequest
    ) -> pb.RegisterResponse:
        wire = pb.Registration()
        wire.CopyFrom(existing)
        wire.ClearField("parameters")
        wire.ClearField("columns")
        wire.MergeFrom(pb.Registration(sql=request.sql, parameters=request.parameters))
        wire.position = self._position()
        _, columns = self._evaluate(wire, "", None)
        wire.columns.extend(columns)
        wire.stream = self._parts(wire.sql)[1]
        self._registrations[wire.handle] = wire
        return pb.RegisterResponse(
            handle=wire.handle, position=wire.position, replaced=True, columns=columns
        )

    def RegisterMany(self, request: pb.RegisterManyRequest) -> pb.RegisterManyResponse:
        if request.WhichOneof("table") == "arrow":
            rows = pa.ipc.open_stream(request.arrow).read_all().to_pylist()
        else:
            rows = from_rows(request.rows, request.rows.columns)
        replies = [self.Register(self._single_request(request, dict(row))) for row in rows]
        return pb.RegisterManyResponse(
            handles=[reply.handle for reply in replies],
            position=self._position(),
            created_count=sum(reply.created for reply in replies),
            replaced_count=sum(reply.replaced for reply in replies),
        )

    def _single_request(
        self, request: pb.RegisterManyRequest, row: dict[str, Any]
    ) -> pb.RegisterRequest:
        from client_sdk._wire.values import to_value

        key = row.pop("client_key", None) or ""
        return pb.RegisterRequest(
            owner=_owner(request),
            client_key=key,
            sql=request.sql,
            parameters={name: to_value(value) for name, value in row.items()},
            replace=request.replace,
        )

    def Unregister(self, request: pb.UnregisterRequest) -> pb.UnregisterResponse:
        del self._registrations[self._registration(request.handle).handle]
        return pb.UnregisterResponse(position=self._position())

    def _registration(self, handle: bytes) -> pb.Registration:
        if handle not in self._registrations:
            raise NotFound("unknown handle", detail=ErrorDetail(reason="UNKNOWN_HANDLE"))
        return self._registrations[handle]

    def DescribeRegistration(self, request: pb.DescribeRegistrationRequest) -> pb.Registration:
        return self._registration(request.handle)

    def ListRegistrations(
        self, request: pb.ListRegistrationsRequest
    ) -> pb.ListRegistrationsResponse:
        matches = [
            registration
            for registration in self._registrations.values()
            if not request.owner or registration.owner == request.owner
        ]
        start = int(request.page_token or 0)
        end = start + min(request.page_size or self._page, self._page)
        return pb.ListRegistrationsResponse(
            registrations=matches[start:end], next_page_token=str(end) if end < len(matches) else ""
        )

    # ---- rows

    def Publish(self, request: pb.PublishRequest) -> pb.PublishResponse:
        stream = self._stream(request.stream)
        content = request.arrow or request.heartbeat.SerializeToString()
        publisher = request.tenant, request.owner, request.publisher
        identity = (publisher, request.sequence)
        if request.publisher and identity in self._published:
            digest, first = self._published[identity]
            if digest != content:
                detail = ErrorDetail(reason="SEQUENCE_REUSED")
                raise Conflict("that sequence was given to other rows", detail=detail)
            again = pb.PublishResponse()
            again.CopyFrom(first)
            again.duplicate = True
            return again
        before = (publisher, request.sequence - 1)
        if request.publisher and request.sequence > 1 and before not in self._published:
            detail = ErrorDetail(reason="SEQUENCE_GAP", got=str(request.sequence))
            raise PreconditionFailed("the sequence before is missing", detail=detail)
        reply = self._accept(stream, request)
        if request.publisher:
            self._published[identity] = (content, reply)
            self._marks[publisher] = request.mark
        return reply

    def ListPublishers(self, request: pb.ListPublishersRequest) -> pb.ListPublishersResponse:
        last, marked = dict[tuple[str, str], int](), dict[tuple[str, str], str]()
        for (tenant, named, name), sequence in self._published:
            owner = named or "main"
            is_listed = tenant == request.tenant and request.owner in ("", owner)
            if is_listed and name.startswith(request.prefix):
                last[owner, name] = max(sequence, last.get((owner, name), 0))
                marked[owner, name] = named
        return pb.ListPublishersResponse(
            publishers=[
                pb.Publisher(
                    owner=owner,
                    name=name,
                    sequence=sequence,
                    mark=self._marks[request.tenant, marked[owner, name], name],
                )
                for (owner, name), sequence in sorted(last.items())
            ]
        )

    def _check_expected(self, stream: FakeStream, table: pa.Table) -> None:
        # Looking for a current row reads all of them.
        rows = table.to_pylist() if "_expected" in table.column_names else []
        for place, row in enumerate(rows):
            current = stream.current(row)
            row_id = -1 if current is None else current["row_id"]
            if row.get("_expected") not in (None, row_id):
                detail = ErrorDetail(
                    reason="CONFLICT_ROW",
                    row=place,
                    field="_expected",
                    got=str(row_id),
                    current=current,
                )
                raise RowConflict("another row of its key is current", detail=detail)

    def _accept(self, stream: FakeStream, request: pb.PublishRequest) -> pb.PublishResponse:
        if request.WhichOneof("batch") == "heartbeat":
            stream.now = max(moment(request.heartbeat), stream.now or moment(request.heartbeat))
            return pb.PublishResponse(position=self._position())
        table = stream.completed(pa.ipc.open_stream(request.arrow).read_all())
        if table.select(stream.schema.names).schema != stream.schema:
            detail = ErrorDetail(reason="WRONG_COLUMNS", expected=str(stream.schema), row=0)
            raise RowProblem("the columns are not the stream's", detail=detail)
        self._check_expected(stream, table)
        first = stream.append(table, datetime.now(UTC))
        return pb.PublishResponse(
            position=self._position(), row_count=table.num_rows, first_row_id=first
        )

    # ---- answers

    def Invoke(self, request: pb.InvokeRequest) -> Iterator[pb.InvokeResponse]:
        yield from self._answer(self._registration(request.handle), request.window, request)

    def Ask(self, request: pb.AskRequest) -> Iterator[pb.InvokeResponse]:
        stream = self._parts(request.sql)[1]
        unregistered = pb.Registration(
            sql=request.sql, parameters=request.parameters, stream=stream
        )
        yield from self._answer(unregistered, "", request)

    def Explain(self, request: pb.ExplainRequest) -> pb.Explanation:
        """Explain an answer; nothing is indexed, so every row is compared."""
        registration = self._registration(request.handle)
        table, _ = self._evaluate(registration, request.window, None)
        rows = self._stream(registration.stream).rows.num_rows
        _, _, where = self._parts(registration.sql)
        run = pb.ExplainedRun(
            considered_rows=rows,
            computed_rows=rows,
            answer_rows=table.num_rows,
            answer_bytes=table.nbytes,
            stages=[pb.Stage(name=name) for name in STAGES],
        )
        factor = pb.Factor(text=where.strip(), access=pb.ACCESS_COMPARED)
        return pb.Explanation(
            registration_count=1,
            factors=[factor] if where.strip() else [],
            stream_rows=rows,
            run=run,
        )

    def _answer(
        self, registration: pb.Registration, window: str, request: pb.InvokeRequest | pb.AskRequest
    ) -> Iterator[pb.InvokeResponse]:
        as_of = moment(request.as_of) if request.HasField("as_of") else None
        table, columns = self._evaluate(registration, window, as_of)
        header = pb.AnswerHeader(
            position=b"%08d" % self._version,
            now=timestamp(as_of or self._now(registration.stream)),
            row_count=table.num_rows,
            columns=columns,
            computed_rows=table.num_rows,
        )
        yield pb.InvokeResponse(header=header)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
        payload = sink.getvalue().to_pybytes()
        for start in range(0, len(payload), 1000):
            yield pb.InvokeResponse(arrow=payload[start : start + 1000])

    def _now(self, stream: str) -> datetime:
        described = self._stream(stream)
        if not described.wire.ordered_by:
            return datetime.now(UTC)
        return described.now or datetime(1970, 1, 1, tzinfo=UTC)

    def _parts(self, sql: str) -> tuple[str, str, str]:
        match = _QUERY.fullmatch(_WINDOW.sub("", sql))
        if match is None:
            detail = ErrorDetail(reason="SYNTAX", line=1, column=1, excerpt=f"{sql}\n^")
            raise QueryProblem("a query begins with SELECT", detail=detail)
        return match[1], match[2].lower(), match[3]

    def _evaluate(
        self, registration: pb.Registration, window: str, as_of: datetime | None
    ) -> tuple[pa.Table, list[pb.Column]]:
        outputs, name, where = self._parts(registration.sql)
        stream = self._stream(name)
        if outputs.strip() == "*":
            outputs = ", ".join(f'"{column.name}"' for column in stream.columns)
        ts = f'"{stream.wire.ordered_by or "ts"}"'
        now = as_of or self._now(name)
        limits = [f"{ts} <= TIMESTAMPTZ '{now.isoformat()}'"]
        if (match := _WINDOW.search(window or registration.sql)) and match[1]:
            begin = now - timedelta(**{f"{match[2].lower()}s": int(match[1])})
            limits.append(f"{ts} >= TIMESTAMPTZ '{begin.isoformat()}'")
        for parameter, value in registration.parameters.items():
            where = re.sub(rf":{parameter}\b", _literal(from_value(value)), where)
        current = f"(SELECT * FROM held WHERE {limits[0]}{_last_of_each(stream.wire, ts)})"
        source = f"(SELECT * FROM {current} WHERE {' AND '.join(limits)}) AS {name}"
        sql = f"SELECT {outputs} FROM {source} {where} ORDER BY {ts}, row_id"
        return self._run(registration.sql, sql, stream)

    def _run(self, text: str, sql: str, stream: FakeStream) -> tuple[pa.Table, list[pb.Column]]:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("held", stream.rows)
            try:
                table: pa.Table = connection.sql(sql).to_arrow_table()
            except duckdb.Error as error:
                raise _query_problem(text, str(error)) from None
        fields = [
            (field.name, pa.timestamp("us", tz="UTC"))
            if pa.types.is_timestamp(field.type)
            else field
            for field in table.schema
        ]
        table = table.cast(pa.schema(fields))
        return table, [
            pb.Column(name=output.name, type=_sql_type(output.type)) for output in table.schema
        ]


def _owner(request: pb.RegisterRequest | pb.RegisterManyRequest) -> str:
    """Return the owner that a request names, or the owner of calls without authentication."""
    return request.owner or "main"


def _last_of_each(stream: pb.Stream, ts: str) -> str:
    if not stream.key:
        return ""
    partition = f"PARTITION BY {', '.join(stream.key)} ORDER BY {ts} DESC, row_id DESC"
    op = "coalesce(_op, 'row')"
    return f" QUALIFY row_number() OVER ({partition}) = 1 AND {op} = 'row'"


def _literal(value: Any) -> str:
    return "NULL" if value is None else repr(value)


def _sql_type(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP"
    return "DATE" if pa.types.is_date(type_) else _ARROW_NAMES.get(str(type_), "BIGINT")


def _query_problem(text: str, why: str) -> PsoupError:
    match = re.search(r'column "(\w+)"', why)
    if match is None:
        return InvalidRequest(why)
    column = text.find(match[1]) + 1
    line = text.splitlines()[0]
    detail = ErrorDetail(
        reason="UNKNOWN_COLUMN",
        line=1,
        column=column,
        excerpt=f"{line}\n{' ' * (column - 1)}{'^' * len(match[1])}",
        hint="Declared columns are listed by `psoup stream show`.",
    )
    return QueryProblem(f"there is no column {match[1]}", detail=detail)
