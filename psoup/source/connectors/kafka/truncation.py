"""What a Debezium message does that says that its table was truncated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from client_sdk import Client, Stream
from psoup.source.connectors.current_rows import last_row_id, pages_of_keys
from psoup.source.errors import BadSettings, PlaceLost
from psoup.source.feeding.piece import Mark, Piece
from psoup.source.mapping import RowMapping

_LOOK_SECONDS = 0.01


class Truncation:
    """Deletes all rows of the stream if `is_deleting`, or stops the source.

    The other rows of the table have to come before the message, or after it: the topic must have
    one partition. Raises BadSettings if deletes are impossible.
    """

    def __init__(
        self,
        stream: Stream,
        mapping: RowMapping,
        make_client: Callable[[], Client],
        is_deleting: bool,
    ) -> None:
        self._stream, self._mapping, self._make_client = stream, mapping, make_client
        self._is_deleting = is_deleting
        if not is_deleting:
            return
        if not stream.key:
            raise BadSettings(f'on_truncate = "delete" needs a KEY in stream {stream.name}')
        # A stream that is yet to be created has no id.
        if stream.id and stream.stats is None:
            raise BadSettings(
                f"on_truncate: the source must be able to read all rows of stream {stream.name}"
            )
        if any(name not in mapping.metadata_columns for name in stream.event_time):
            raise BadSettings(
                "on_truncate: a delete has no fields, so the event time of "
                f"{stream.name} must be $commit_time or $timestamp"
            )

    def check(self, partition_count: int) -> None:
        """Raise BadSettings if the topic has too many partitions."""
        if self._is_deleting and partition_count > 1:
            raise BadSettings(
                f"on_truncate: the topic has {partition_count} partitions, which have no order"
            )

    def pieces(
        self,
        place: str,
        metadata: Mapping[str, Any],
        mark: Mark,
        is_stored: Callable[[], bool],
    ) -> Iterator[Piece]:
        """Yield the deletes that a message means. `mark` is its place: what is interrupted begins
        again. `is_stored` returns whether the store has everything before. Raises PlaceLost.
        """
        if not self._is_deleting:
            raise PlaceLost(
                f"the table was truncated: {place}; go on with skip, or set on_truncate = "
                '"delete" to delete all rows of the stream'
            )
        empty = Piece(self._stream.schema.empty_table(), mark=mark)
        yield empty
        while not is_stored():
            time.sleep(_LOOK_SECONDS)
            yield empty
        with self._make_client() as client:
            last = last_row_id(client, self._stream)
            for keys in pages_of_keys(client, self._stream, last) if last is not None else ():
                rows = [self._mapping.deletion(key, metadata) for key in keys]
                chunk = self._mapping.chunk(rows, range(len(rows)), {})
                piece = Piece.of(chunk, where=f"{place}, ")
                yield Piece(piece.table, piece.bad, mark, lambda record: mark)
