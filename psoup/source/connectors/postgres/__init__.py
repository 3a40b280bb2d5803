"""PostgreSQL tables: a snapshot, then the transactions of a replication slot, by wal2json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from psoup.source.connectors.marks import MarkForm
from psoup.source.connectors.partition import (
    NO_FIELDS,
    Context,
    Partition,
    Records,
    stored_mark,
)
from psoup.source.connectors.postgres.catalog import TableMapping, quoted, read_shape
from psoup.source.connectors.postgres.changes import ChangeMaker
from psoup.source.connectors.postgres.session import connect
from psoup.source.connectors.postgres.snapshot import snapshot_mark
from psoup.source.connectors.postgres.wal import PostgresReader
from psoup.source.errors import BadSettings
from psoup.source.feeding.piece import Mark, Piece
from psoup.source.lag import Lag
from psoup.source.readers import FileChunk

_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_TABLE = re.compile(r"[^.,*\s]+\.[^.,*\s]+")
_SIZE = re.compile(r"(\d+)\s*(MB|GB|TB)")
_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12}
_SAMPLE_ROWS = 10
# Within a snapshot there is no place to go on at.
_FORM = MarkForm(
    ("earliest",),
    '{"phase": "wal", "slot": "psoup_orders", "lsn": "0/16B3748"}',
    required={"phase": str, "slot": str, "lsn": str},
    optional={"time": str, "truncate": bool},
    patterns={"phase": re.compile("wal"), "lsn": re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")},
)


class PostgresConnector:
    """One table. The stream's KEY is a unique key of it."""

    look_seconds = 0.0
    parallel = 1
    fresh_partitions = False

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self._context = context
        self._dsn_file = settings.path("dsn_file")
        self._slot = settings.text("slot")
        self._table = settings.text("table")
        self._on_truncate = settings.text("on_truncate", "stop")
        self._slot_most = (
            _size(settings.text("slot_most")) if "slot_most" in settings.place else None
        )
        if not _SLOT.fullmatch(self._slot):
            raise BadSettings("slot: a name of a slot has small letters, digits and _")
        if not _TABLE.fullmatch(self._table):
            raise BadSettings("table: write schema.table")
        if self._on_truncate not in ("stop", "delete"):
            raise BadSettings('on_truncate: write "stop" or "delete"')

    def _mapping(self) -> TableMapping:
        settings = self._context.settings
        connection = connect(self._dsn_file)
        try:
            with connection.cursor() as cursor:
                shape = read_shape(cursor, self._table)
        finally:
            connection.close()
        stream = self._context.stream
        # A stream that is yet to be created has no id, and no rows to compare with.
        if stream.id and stream.stats is None:
            raise BadSettings(
                f"the source must be able to read all rows of stream {stream.name}: snapshots are "
                "compared with them"
            )
        return TableMapping(stream, settings.columns, settings.parse, shape, self._context.notice)

    @property
    def left_out(self) -> Mapping[str, int]:
        return {}

    def partitions(self, records: Records) -> list[Partition]:
        name = f"{self._context.settings.name}/{self._table}"
        stored = stored_mark(records[name]) if name in records else {}
        return [Partition(name, self._open, partial(self._begin, stored))]

    def _begin(self, stored: Mark, text: str) -> Mark:
        """Return the mark of a place. `stored` is the one that the store has."""
        if text != "earliest":
            return _FORM.read(text)
        if stored.get("slot") != self._slot:
            return {}
        # The slot is this source's, which may drop it. Times of rows never go back.
        times = {"time": stored["time"]} if "time" in stored else {}
        return {**snapshot_mark(self._slot), **times}

    def _open(self, mark: Mark) -> PostgresReader:
        if mark.get("phase") != "snapshot":
            _FORM.check(mark)
        return PostgresReader(
            self._dsn_file,
            self._table,
            self._slot,
            self._mapping(),
            mark,
            self._context.seeing_client,
            self._on_truncate,
            self._slot_most,
        )

    def check(self) -> list[str]:
        self._mapping()
        return [f"table {self._table}, slot {self._slot}"]

    def sample(self, records: Records) -> Piece | None:
        mapping = self._mapping()
        names, query = mapping.select()
        connection = connect(self._dsn_file)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"{query} LIMIT {_SAMPLE_ROWS}")
                rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        finally:
            connection.close()
        maker = ChangeMaker(mapping)
        chunk = maker.chunk([maker.row(row, "0/0", "1970-01-01 00:00:00.000000Z") for row in rows])
        return Piece.of(chunk, {})

    def lag(self, records: Records) -> dict[str, Lag]:
        connection = connect(self._dsn_file)
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint, "
                    "pg_wal_lsn_diff(confirmed_flush_lsn, '0/0')::bigint, "
                    "pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint "
                    "FROM pg_replication_slots WHERE slot_name = %s",
                    (self._slot,),
                )
                row = cursor.fetchone()
        finally:
            connection.close()
        if row is None:
            return {}
        end, mark, kept = row
        return {name: Lag("bytes behind", mark, end, retained_bytes=kept) for name in records}

    def replayed(self, raw: str, metadata: Mapping[str, Any]) -> FileChunk:
        raise ValueError(NO_FIELDS)

    def setup(self) -> str:
        """Return the statements that a superuser runs once. The source creates the slot itself."""
        table = quoted(self._table)
        return (
            "-- postgresql.conf: wal_level = logical; the package wal2json\n"
            f"ALTER TABLE {table} REPLICA IDENTITY FULL;\n"
            "CREATE ROLE psoup LOGIN REPLICATION PASSWORD '…';\n"
            f"GRANT SELECT ON {table} TO psoup;\n"
            f"-- when the source is given up:\n-- SELECT pg_drop_replication_slot('{self._slot}');"
        )


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise BadSettings('slot_most: write "10GB"')
    return int(match[1]) * _UNITS[match[2]]
