"""Messages of Kafka as rows: whatever they hold, the other messages are not lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from client_sdk import Column, Stream
from psoup.source.connectors.kafka.decoding import CsvOptions, MessageDecoder
from psoup.source.errors import BadInput, BadSettings, PlaceLost
from psoup.source.feeding.piece import Piece
from psoup.source.mapping import RowMapping

COLUMNS = (Column("id", "BIGINT"), Column("v", "TEXT"), Column("at", "TIMESTAMP"))
STREAM = Stream("t", 1, COLUMNS, None, None, timedelta(0), 0, None, "", 0, key=("id",))
HUGE = "1e9999999999999999999"


class Message:
    def __init__(self, offset: int, value: Any, key: Any = None, time: int = 0) -> None:
        self._offset, self._time = offset, time
        self._value, self._key = (
            content
            if content is None or isinstance(content, bytes)
            else json.dumps(content).encode()
            for content in (value, key)
        )

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def offset(self) -> int:
        return self._offset

    def partition(self) -> int:
        return 0

    def topic(self) -> str:
        return "t"

    def headers(self) -> list[tuple[str, bytes]]:
        return []

    def timestamp(self) -> tuple[int, int]:
        return 1, self._time


def decoder(form: str, at: str = "$timestamp") -> MessageDecoder:
    return MessageDecoder(STREAM, RowMapping(STREAM, {"at": at}), form)


def no_truncation(place: str, offset: int, metadata: Mapping[str, Any]) -> Iterator[Piece]:
    raise PlaceLost(f"truncated: {place}")


def pieces(decoder: MessageDecoder, *messages: Message) -> list[Piece]:
    return list(decoder.pieces(messages, lambda offset: {"offset": offset}, no_truncation))


GOOD = {"id": 1, "v": "a"}
ENVELOPE = {"op": "c", "after": GOOD}


@pytest.mark.parametrize(
    ("form", "value", "key", "time"),
    [
        ("json", None, {"payload": 5}, 0),
        ("json", None, {"payload": None}, 0),
        ("json", None, b"\xff", 0),
        ("json", f'{{"id": {HUGE}}}'.encode(), None, 0),
        ("json", None, HUGE.encode(), 0),
        ("json", b"[" * 100_000, None, 0),
        ("json", ("1" * 5000).encode(), None, 0),
        ("json", GOOD, None, 10**18),
        ("debezium", {**ENVELOPE, "op": ["c"]}, None, 0),
        ("debezium", {"payload": [1]}, None, 0),
        ("debezium", {"op": "d", "before": 5}, {"payload": 5}, 0),
        ("debezium", {**ENVELOPE, "source": {"ts_ms": 10**30}}, None, 0),
        ("debezium", {**ENVELOPE, "after": {"id": 2, "v": "\ud800"}}, None, 0),
    ],
    ids=range(13),
)
def test_a_message_that_can_not_be_read_is_one_bad_row(
    form: str, value: Any, key: Any, time: int
) -> None:
    good = GOOD if form == "json" else ENVELOPE
    messages = [Message(5, good), Message(6, value, key, time), Message(7, good)]
    (piece,) = pieces(decoder(form), *messages)
    assert piece.table.column("v").to_pylist() == ["a", "a"]
    (bad,) = piece.bad
    assert bad.record == 1 and bad.place.startswith("t[0]@6"), bad
    assert piece.mark == {"offset": 8}


@pytest.mark.parametrize("source", ["x", 5, [], {"ts_ms": "x"}, {"ts_ms": True}, None])
def test_a_source_that_says_no_time_is_no_time(source: Any) -> None:
    (piece,) = pieces(
        decoder("debezium", "$commit_time"), Message(5, {**ENVELOPE, "source": source})
    )
    assert piece.table.column("at").to_pylist() == [None] and not piece.bad


def test_a_truncated_table_comes_after_the_rows_before_it() -> None:
    messages = [Message(5, ENVELOPE), Message(6, {"op": "t"}), Message(7, ENVELOPE)]
    result = decoder("debezium").pieces(messages, lambda offset: {"offset": offset}, no_truncation)
    piece = next(result)
    assert piece.table.num_rows == 1 and piece.mark == {"offset": 6}
    with pytest.raises(PlaceLost, match=r"truncated: t\[0\]@6"):
        next(result)


def test_a_truncated_table_between_rows() -> None:
    """Its deletes come at its place, with what the message says of itself."""
    places = list[tuple[str, int, Any]]()

    def deletes(place: str, offset: int, metadata: Mapping[str, Any]) -> Iterator[Piece]:
        places.append((place, offset, metadata.get("commit_time")))
        yield Piece(STREAM.schema.empty_table(), mark={"offset": offset})

    truncation = {"op": "t", "source": {"ts_ms": 1000}}
    messages = [Message(2, ENVELOPE), Message(6, truncation), Message(7, ENVELOPE)]
    result = decoder("debezium").pieces(messages, lambda offset: {"offset": offset}, deletes)
    assert [(piece.mark, piece.table.num_rows) for piece in result] == [
        ({"offset": 6}, 1),
        ({"offset": 6}, 0),
        ({"offset": 8}, 1),
    ]
    assert places == [("t[0]@6", 6, "1970-01-01T00:00:01.000+00:00")]


def test_records_of_csv() -> None:
    columns = (*COLUMNS, Column("ok", "BOOLEAN"), Column("price", "DECIMAL(9,2)"))
    stream = replace(STREAM, columns=columns)
    mapping = RowMapping(stream, {"at": "$timestamp"}, frozenset(c.name for c in columns))
    texts = [
        b'1;"a;""b""\nc";true;1.50',
        b"2;;;",
        b"3;x;maybe;1",
        b"4;x",
        b'5;"x',
        b"6;x;1;1\n7;y;1;1",
        b"",
        b"\xff;x;1;1",
        "8;ä;FALSE;1e1\r\n".encode(),
    ]
    for broken in ({"delimiter": ";;"}, {"encoding": "utf-9"}):
        with pytest.raises((BadSettings, BadInput)):
            CsvOptions(**broken)
    options = CsvOptions(";")
    (piece,) = MessageDecoder(stream, mapping, "csv", options).pieces(
        [Message(number, text) for number, text in enumerate(texts)],
        lambda offset: {"offset": offset},
        no_truncation,
    )
    rows = [tuple(row.values()) for row in piece.table.drop_columns(["at"]).to_pylist()]
    assert rows == [
        (1, 'a;"b"\nc', True, Decimal("1.50")),
        (2, None, None, None),
        (8, "ä", False, Decimal(10)),
    ]
    assert [row.record for row in piece.bad] == [2, 3, 4, 5, 6, 7]
    assert "has 2 fields, and not 4: id, v, ok, price" in piece.bad[1].message
