"""Messages of Kafka as rows of a stream."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from client_sdk import Stream
from psoup.source.connectors.kafka.stored import StoredMessage, metadata_of
from psoup.source.errors import BadSettings
from psoup.source.feeding.piece import BadRow, Mark, Piece
from psoup.source.mapping import Row, RowMapping, load_json
from psoup.source.readers.chunk import BadLine, FileChunk
from psoup.source.readers.encoding import codec_name
from psoup.source.readers.records import MAX_RECORD_BYTES

FORMATS = ("json", "csv", "text", "debezium")
_MAX_RAW_CHARACTERS = 1 << 20
_SHOWN_CHARACTERS = 200
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Returns the mark at an offset.
MarkAt = Callable[[int], Mark]
# Returns what a truncated table means, given the place, the offset and what the message says.
TruncatedPieces = Callable[[str, int, Mapping[str, Any]], Iterator[Piece]]


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How messages are written in CSV; `null` is the text for NULL."""

    delimiter: str = ","
    null: str = ""
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        codec_name(self.encoding)
        if len(self.delimiter) != 1:
            raise BadSettings(f"delimiter: {self.delimiter!r} is not one character")


DEFAULT_CSV = CsvOptions()
# The module takes no larger values by default.
csv.field_size_limit(MAX_RECORD_BYTES)


class MessageDecoder:
    """Makes pieces of messages. A message may be no record, as a tombstone after a Debezium delete,
    or two: a changed key is a delete and a row.
    """

    def __init__(
        self,
        stream: Stream,
        mapping: RowMapping,
        form: str,
        csv_options: CsvOptions = DEFAULT_CSV,
    ) -> None:
        if form not in FORMATS:
            raise BadSettings(f"format: one of {', '.join(FORMATS)}")
        self._stream, self._mapping, self._form = stream, mapping, form
        self._csv_options = csv_options
        self.empty = stream.schema.empty_table()

    def pieces(
        self, messages: Sequence[Any], mark_at: MarkAt, truncated: TruncatedPieces
    ) -> Iterator[Piece]:
        """Yield the records of messages; `mark_at` returns the mark at an offset. `truncated`
        returns the pieces of a message that says that a table was truncated, or raises PlaceLost.
        """
        rows, sources, bad = list[Row](), list[Any](), dict[int, BadLine]()
        for message in messages:
            try:
                records = self._rows(message)
            except _Truncated as truncation:
                if sources:
                    # What comes before the message has its own place.
                    before = self._piece(rows, sources, bad, mark_at)
                    yield replace(before, mark=mark_at(message.offset()))
                rows, sources, bad = [], [], {}
                yield from truncated(place_of(message), message.offset(), truncation.metadata)
                continue
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
        if self._form == "csv":
            return [self._mapping.positional(self._csv_values(value), metadata)]
        return [self._mapping.row(_object(value), metadata)]

    def _csv_values(self, value: bytes) -> list[str | None]:
        """Return the values of a message that is one record of CSV."""
        options = self._csv_options
        try:
            text = io.StringIO(value.decode(options.encoding), newline="")
            records = list(csv.reader(text, delimiter=options.delimiter, strict=True))
        except csv.Error as error:
            raise ValueError(f"is not CSV ({error})") from None
        if len(records) != 1:
            raise ValueError(f"has {len(records)} records of CSV, and not one")
        return [None if field == options.null else field for field in records[0]]

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
        source = envelope.get("source")
        if isinstance(source, dict) and type(source.get("ts_ms")) is int:
            metadata.commit_time = _instant(source["ts_ms"])
        if operation == "t":
            raise _Truncated(metadata)
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

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        super().__init__("says that the table was truncated")
        self.metadata = metadata


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


def place_of(message: Any) -> str:
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
    return BadRow(line.record, f"{place_of(message)}{column}", reason, why, raw, metadata)
