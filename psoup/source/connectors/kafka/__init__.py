"""Kafka topics: one partition of the source for each partition of the topic."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from psoup.source.connectors.kafka.broker import Broker
from psoup.source.connectors.kafka.decoding import CsvOptions, MessageDecoder
from psoup.source.connectors.kafka.reader import KafkaReader
from psoup.source.connectors.kafka.shared import SharedConsumer
from psoup.source.connectors.kafka.truncation import Truncation
from psoup.source.connectors.marks import MarkForm
from psoup.source.connectors.partition import Context, Partition, Records, stored_mark
from psoup.source.errors import BadSettings, PlaceLost
from psoup.source.feeding.piece import Mark, Piece, first_piece
from psoup.source.feeding.queue import batch_bytes
from psoup.source.lag import Lag
from psoup.source.mapping import MESSAGE_METADATA, RowMapping, check_metadata
from psoup.source.readers import FileChunk

_ENDS = ("earliest", "latest")
_FORM = MarkForm(
    (*_ENDS, "an instant such as 2026-11-16T09:00"),
    '{"offset": 18}',
    required={"offset": int},
    optional={"topic_id": str},
)


class KafkaConnector:
    """A topic. Its messages are JSON objects, texts, or envelopes of Debezium."""

    look_seconds = 30.0
    parallel = 10_000
    fresh_partitions = False

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self._context = context
        self._topic = settings.text("topic")
        file = settings.path("settings_file") if "settings_file" in settings.place else None
        group = f"psoup-{settings.name}"
        self._broker = Broker(settings.text("servers"), self._topic, group, file)
        form = settings.format or "json"
        # All values of CSV are texts.
        names = frozenset(column.name for column in context.stream.columns)
        parse = names if form == "csv" else settings.parse
        self._mapping = RowMapping(context.stream, settings.columns, parse)
        has_times = form == "debezium"
        check_metadata(
            settings.columns, MESSAGE_METADATA | ({"commit_time"} if has_times else frozenset())
        )
        csv_options = CsvOptions(settings.delimiter or ",", settings.null, settings.encoding)
        self._decoder = MessageDecoder(context.stream, self._mapping, form, csv_options)
        self._truncation = Truncation(
            context.stream, self._mapping, context.seeing_client, self._deletes_truncated(form)
        )
        self._shared = SharedConsumer(self._broker)
        self._topic_id, self._partition_count = "", 1

    def _deletes_truncated(self, form: str) -> bool:
        on_truncate = self._context.settings.text("on_truncate", "stop")
        if on_truncate not in ("stop", "delete"):
            raise BadSettings('on_truncate: write "stop" or "delete"')
        if on_truncate == "delete" and form != "debezium":
            raise BadSettings('on_truncate is for format = "debezium"')
        return on_truncate == "delete"

    @property
    def left_out(self) -> Mapping[str, int]:
        return self._mapping.left_out

    def partitions(self, records: Records) -> list[Partition]:
        topic_id, numbers = self._broker.describe()
        if self._topic_id not in ("", topic_id):
            raise PlaceLost(f"topic {self._topic} was made again; go on with skip --to earliest")
        self._topic_id, self._partition_count = topic_id, len(numbers)
        return [
            Partition(
                self._publisher(number), partial(self._open, number), partial(self._begin, number)
            )
            for number in numbers
        ]

    def _publisher(self, number: int) -> str:
        return f"{self._context.settings.name}/{self._topic}/{number}"

    def _begin(self, number: int, text: str) -> Mark:
        if text.startswith("{"):
            return {"topic_id": self._topic_id, **_FORM.read(text)}
        if text in _ENDS:
            offset = self._broker.ends([number])[number][_ENDS.index(text)]
        else:
            offset = self._broker.offset_at(number, _milliseconds(text))
        return {"topic_id": self._topic_id, "offset": offset}

    def _open(self, number: int, mark: Mark) -> KafkaReader:
        _FORM.check(mark)
        topic_id, _ = self._broker.describe()
        self._truncation.check(self._partition_count)
        return KafkaReader(
            self._broker,
            self._shared,
            topic_id,
            number,
            self._decoder,
            self._truncation,
            mark,
            batch_bytes(self._partition_count),
        )

    def check(self) -> list[str]:
        topic_id, numbers = self._broker.describe()
        self._truncation.check(len(numbers))
        return [f"topic {self._topic} with {len(numbers)} partitions, id {topic_id}"]

    def sample(self, records: Records) -> Piece | None:
        for partition in self.partitions(records):
            piece = first_piece(partition.open_reader(partition.begin("earliest")))
            if piece is not None:
                return piece
        return None

    def lag(self, records: Records) -> dict[str, Lag]:
        marks = {
            number: stored_mark(records[self._publisher(number)])
            for number in self._broker.describe()[1]
            if self._publisher(number) in records
        }
        ends = self._broker.ends(number for number, mark in marks.items() if _FORM.fits(mark))
        kept_seconds = self._broker.retention_seconds()
        return {
            self._publisher(number): Lag(
                "messages", int(marks[number]["offset"]), high, True, kept_seconds=kept_seconds
            )
            for number, (_, high) in ends.items()
        }

    def replayed(self, raw: str, metadata: Mapping[str, Any]) -> FileChunk:
        return self._decoder.replayed(raw, metadata)

    def setup(self) -> str:
        return ""


def _milliseconds(text: str) -> int:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise _FORM.misfit(text) from None
    instant = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant
    return round(instant.timestamp() * 1000)
