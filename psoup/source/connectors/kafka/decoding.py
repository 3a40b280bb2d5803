"""Messages of Kafka as rows of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from client_sdk import Stream
from psoup.source.connectors.kafka.stored import StoredMessage, metadata_of
from psoup.source.errors import BadSettings, PlaceLost
from psoup.source.feeding.piece import BadRow, Mark, Piece
from psoup.source.mapping import Row, RowMapping, load_json
from psoup.source.readers.chunk import BadLine, FileChunk

FORMATS = ("json", "text", "debezium")
_MAX_RAW_CHARACTERS = 1 << 20
_SHOWN_CHARACTERS = 200
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Returns the mark at an offset.
MarkAt = Callable[[int], Mark]


class MessageDecoder:
    """Makes pieces of messages. A message may be no record, as a tombstone after a Debezium delete,
    or two: a changed key is a delete and a row.
    """

    def __init__(self, stream: Stream, mapping: RowMapping, form: str) -> None:
        if form not in FORMATS:
            raise BadSettings(f"format: one of {', '.join(FORMATS)}")
        self._stream, self._mapping, self._form = stream, mapping, form
        self.empty = stream.schema.empty_table()

    def pieces(self, messages: Sequence[Any], mark_at: MarkAt) -> Iterator[Piece]:
        """Yield the records of messages; `mark_at` returns the mark at an offset. Raises PlaceLost
        behind the records before a message that says that a table was truncated.
        """
        rows, sources, bad = list[Row](), list[Any](), dict[int, BadLine]()
        for message in messages:
            try:
                records = self._rows(message)
            except _Truncated:
                if sources:
                    yield self._piece(rows, sources, bad, mark_at)
                raise PlaceLost(
                    f"the table was truncated: {_place(message)}; go on with skip"
                ) from None
            except (ValueError, ArithmeticError, RecursionError) as error:
                bad[len(rows)] = BadLine(len(rows), "", "", str(error))
                records = [{}]
            rows += records
            sources += [message] * len(records)
        end = mark_at(messages[-1].offset() + 1)
        yield replace(self._piece(rows, sources, bad, mark_at), mark=end)

    def _piece(
        self,
        rows: Sequence[Row],
        sources: Sequence[Any],
        bad: dict[int, BadLine],
        mark_at: MarkAt,
    ) -> Piece:
        chunk = self._mapping.chunk(rows, range(len(rows)), bad)
        bad_rows = tuple(_bad_row(line, sources) for line in chunk.bad)
        mark = mark_at(sources[-1].offset() + 1) if sources else None
        return Piece(chunk.table, bad_rows, mark, lambda record: mark_at(sources[record].offset()))

    def replayed(self, raw: str, metadata: Mapping[str, Any]) -> FileChunk:
        """Return the rows of a message that was put aside. Raises ValueError."""
        rows = self._rows(StoredMessage(raw, metadata))
        if "record" in metadata:
            # The other record of the message has its own place, in the stream or aside.
            rows = rows[metadata["record"] :][:1] or rows[-1:]
        return self._mapping.chunk(rows, range(len(rows)), {})

    def _rows(self, message: Any) -> list[Row]:
        value, metadata = message.value(), _Metadata(message)
        if self._form == "text":
            return [self._mapping.row({}, metadata)]
        if self._form == "debezium":
            return self._debezium(value, message, metadata)
        if value is None:
            return [self._mapping.delete(self._key_fields(message), metadata)]
        return [self._mapping.row(_object(value), metadata)]

    def _key_fields(self, message: Any) -> dict[str, Any]:
        """Return the fields of a message's key: a JSON object, or the one column of the KEY."""
        if not self._stream.key:
            raise ValueError("has no value, and the stream has no KEY to delete by")
        key = message.key()
        if key is None:
            raise ValueError("has neither a value nor a key")
        try:
            fields = load_json(key)
        except ValueError:
            fields = key.decode()
        if isinstance(fields, dict):
            payload = fields.get("payload", fields)
            if not isinstance(payload, dict):
                raise ValueError("has a key whose payload is not an object")
            return payload
        if len(self._stream.key) != 1:
            raise ValueError("has a key that is not a JSON object")
        return self._mapping.named(self._stream.key[0], fields)

    def _debezium(self, value: bytes | None, message: Any, metadata: _Metadata) -> list[Row]:
        if value is None:
            return []
        envelope = _object(value)
        envelope = envelope.get("payload", envelope)
        if not isinstance(envelope, dict) or "op" not in envelope:
            raise ValueError("is not an envelope of Debezium")
        operation, before, after = envelope["op"], envelope.get("before"), envelope.get("after")
        if operation == "t":
            raise _Truncated
        source = envelope.get("source")
        if isinstance(source, dict) and type(source.get("ts_ms")) is int:
            metadata.commit_time = _instant(source["ts_ms"])
        if operation == "d":
            fields = before if isinstance(before, dict) else self._key_fields(message)
            return [self._mapping.delete(fields, metadata)]
        if operation not in ("c", "r", "u") or not isinstance(after, dict):
            raise ValueError(f"has the operation {operation!r}, which is unknown")
        row = self._mapping.row(after, metadata)
        if operation == "u" and isinstance(before, dict) and self._stream.key:
            old = self._mapping.delete(before, metadata)
            if any(old[name] != row[name] for name in self._stream.key):
                return [old, row]
        return [row]


class _Truncated(ValueError):
    """A message that says that a table was truncated."""


class _Metadata(Mapping[str, Any]):
    """What a message says beside its value, made when it is asked for."""

    def __init__(self, message: Any) -> None:
        self._message = message
        self.commit_time: str | None = None

    def __getitem__(self, name: str) -> Any:
        message = self._message
        if name.startswith("headers."):
            wanted_name = name.removeprefix("headers.")
            values = [value for label, value in message.headers() or () if label == wanted_name]
            return _text(values[-1]) if values else None
        match name:
            case "value":
                return _text(message.value())
            case "key":
                return _text(message.key())
            case "timestamp":
                milliseconds = message.timestamp()[1]
                return _instant(milliseconds) if milliseconds >= 0 else None
            case "offset":
                return message.offset()
            case "partition":
                return message.partition()
            case "topic":
                return message.topic()
            case "commit_time":
                return self.commit_time
        raise KeyError(name)

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


def _object(value: bytes) -> dict[str, Any]:
    fields = load_json(value)
    if not isinstance(fields, dict):
        raise ValueError("is not a JSON object")
    return fields


def _text(content: bytes | None) -> str | None:
    """Return a text. Raises ValueError if it is not UTF-8."""
    return None if content is None else content.decode()


def _instant(milliseconds: int) -> str:
    """Return an instant as a text. Raises ValueError if it is out of range."""
    try:
        instant = _UNIX_EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise ValueError(f"has the instant {milliseconds}, which is out of range") from None
    return instant.isoformat(timespec="milliseconds")


def _place(message: Any) -> str:
    return f"{message.topic()}[{message.partition()}]@{message.offset()}"


def _bad_row(line: BadLine, sources: Sequence[Any]) -> BadRow:
    """Return a bad record as a bad row. `sources` are the messages of the records."""
    message = sources[line.record]
    count = sum(source is message for source in sources[max(0, line.record - 1) : line.record + 2])
    number = int(line.record > 0 and sources[line.record - 1] is message)
    raw = (message.value() or b"").decode("utf-8", "backslashreplace")[:_MAX_RAW_CHARACTERS]
    column = f", {line.column}" if line.column else ""
    reason = "BAD_VALUE" if line.column else "BAD_ROW"
    why = f"{raw[:_SHOWN_CHARACTERS]!r}: {line.text} {line.why}"
    metadata = metadata_of(message, raw, number if count > 1 else None)
    return BadRow(line.record, f"{_place(message)}{column}", reason, why, raw, metadata)
