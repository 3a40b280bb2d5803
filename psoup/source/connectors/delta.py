"""Delta tables: what each version added, or what its change feed says.

The first read is the table as it is; after that each version by itself. Rows come in an order that
does not depend on when they are read: files in the order of the commit, changes sorted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from client_sdk import Stream
from psoup.source.connectors.delta_log import DeltaLog, Version
from psoup.source.connectors.marks import MarkForm
from psoup.source.connectors.partition import (
    NO_FIELDS,
    Context,
    Partition,
    Records,
    stored_mark,
)
from psoup.source.errors import BadSettings, PlaceLost
from psoup.source.feeding.piece import Mark, Piece, first_piece
from psoup.source.lag import Lag
from psoup.source.mapping import check_metadata
from psoup.source.readers import FileChunk, Options
from psoup.source.readers.chunk import OP, column_map
from psoup.source.readers.parquet_reader import arrow_chunk, check_types

POLL_SECONDS = 1.0
_CHUNK_ROWS = 10_000
_DELETES = ("delete", "update_preimage")
_ROWS = ("insert", "update_postimage")
_ENDS = ("earliest", "latest")
_FORM = MarkForm(
    _ENDS,
    '{"version": 5}',
    required={"version": int},
    optional={"table": str, "snapshot": bool},
)


class DeltaConnector:
    """A Delta table, read by its versions. Its mark is `{"table": ID, "version": N}`; with
    `"snapshot": true` all rows of that version are still to be read.

    With `changes`, updates and deletes come through the change feed into a stream with a KEY.
    Without, versions may only add rows; one that removed some stops the source.
    """

    look_seconds = 0.0
    parallel = 1
    fresh_partitions = False

    def __init__(self, context: Context) -> None:
        settings = context.settings
        place = settings.text("table")
        self._uri = place if "://" in place else str(settings.path("table"))
        self._changes = settings.place.get("changes", False)
        if not isinstance(self._changes, bool):
            raise BadSettings("changes: write true or false")
        if self._changes and not context.stream.key:
            raise BadSettings(f"changes = true needs a KEY in stream {context.stream.name}")
        self._context = context
        check_metadata(settings.columns, frozenset())
        self._options = Options(
            rename={path: column for column, path in settings.columns.items()}, lenient=True
        )

    def log(self) -> DeltaLog:
        options = None
        if "settings_file" in self._context.settings.place:
            options = _storage_options(self._context.settings)
        return DeltaLog(self._uri, options)

    @property
    def left_out(self) -> Mapping[str, int]:
        return {}

    def partitions(self, records: Records) -> list[Partition]:
        name = f"{self._context.settings.name}/table"
        return [Partition(name, self._open, self._begin)]

    def _begin(self, text: str) -> Mark:
        given = _FORM.read(text) if text not in _ENDS else {}
        log = self.log()
        if given:
            return {"table": log.table_id, **given}
        mark = {"table": log.table_id, "version": log.latest()}
        # The version is part of the mark: rows are counted in that one and no other.
        return mark | {"snapshot": True} if text == "earliest" else mark

    def _open(self, mark: Mark) -> DeltaReader:
        _FORM.check(mark)
        return DeltaReader(self.log(), self._context.stream, self._options, self._changes, mark)

    def check(self) -> list[str]:
        log = self.log()
        return [f"table {self._uri}, version {log.latest()}"]

    def sample(self, records: Records) -> Piece | None:
        return first_piece(self._open(self._begin("earliest")))

    def lag(self, records: Records) -> dict[str, Lag]:
        latest = self.log().latest()
        name = f"{self._context.settings.name}/table"
        mark = stored_mark(records[name]) if name in records else {}
        return {name: Lag("versions", int(mark["version"]), latest)} if _FORM.fits(mark) else {}

    def replayed(self, raw: str, metadata: Mapping[str, Any]) -> FileChunk:
        raise ValueError(NO_FIELDS)

    def setup(self) -> str:
        return (
            f"ALTER TABLE delta.`{self._uri}`\n"
            "  SET TBLPROPERTIES (delta.enableChangeDataFeed = true);"
            if self._changes
            else ""
        )


class DeltaReader:
    """A reader of a table's versions after a mark."""

    can_seek = True
    at_end = False

    def __init__(
        self, log: DeltaLog, stream: Stream, options: Options, changes: bool, mark: Mark
    ) -> None:
        self._log, self._stream, self._options, self._changes = log, stream, options, changes
        if mark["table"] != log.table_id:
            raise PlaceLost(
                f"the table was made again: its id is {log.table_id}, that of the mark "
                f"{mark['table']}. Read it as a whole with skip --to earliest"
            )
        self._version = int(mark["version"])
        self._pieces: Iterator[Piece] = iter(())
        if mark.get("snapshot"):
            self._pieces = self._marked(self._files(log.files(self._version)), self._version)
        self._looked_at = 0.0

    def poll(self, seconds: float) -> Piece | None:
        piece = next(self._pieces, None)
        if piece is not None:
            return piece
        if (wait := self._looked_at + POLL_SECONDS - time.monotonic()) > 0:
            time.sleep(min(wait, seconds))
            if wait > seconds:
                return None
        self._looked_at = time.monotonic()
        self.at_end = not self._log.has(self._version + 1)
        if self.at_end:
            return None
        self._version += 1
        self._looked_at = 0.0
        self._pieces = self._marked(self._version_chunks(self._version), self._version)
        return next(self._pieces, None)

    def acknowledge(self, mark: Mark) -> None:
        """The table is only read."""

    def interrupt(self) -> None:
        """A poll does not wait for long."""

    def close(self) -> None:
        """Nothing is held."""

    def _marked(self, chunks: Iterator[FileChunk], version: int) -> Iterator[Piece]:
        """Yield the pieces of a version; only the last one has a mark."""
        where = f"version {version}, "
        for chunk in chunks:
            yield Piece.of(chunk, where=where)
        mark = {"table": self._log.table_id, "version": version}
        yield Piece(self._stream.schema.empty_table(), mark=mark)

    def _version_chunks(self, number: int) -> Iterator[FileChunk]:
        version = self._log.version(number)
        if version.changes_schema:
            self._log.reload()
        if self._changes:
            yield from self._change_chunks(version)
            return
        if version.removed:
            raise PlaceLost(
                f"version {number} ({version.operation}) removed or changed rows, and the table "
                "is read without its change feed. Set changes = true and a KEY, or pass over it "
                f'with skip --to \'{{"table": "{self._log.table_id}", "version": {number}}}\''
            )
        yield from self._files(version.added)

    def _files(self, added: list[Mark]) -> Iterator[FileChunk]:
        for action in added:
            with self._log.open(action["path"]) as source:
                file = pa.parquet.ParquetFile(source)
                first = 0
                for batch in file.iter_batches(_CHUNK_ROWS):
                    whole = self._log.with_partition(batch, action.get("partitionValues") or {})
                    yield self._chunk(whole, first)
                    first += batch.num_rows

    def _chunk(self, batch: pa.RecordBatch, first: int) -> FileChunk:
        columns = column_map(batch.schema.names, self._stream, self._options)
        check_types(batch.schema, self._stream, columns)
        return arrow_chunk(batch, columns, self._stream, first, lenient=True)

    def _change_chunks(self, version: Version) -> Iterator[FileChunk]:
        if not version.has_data:
            return
        changes = self._log.changes(version.number)
        kinds = changes.column("_change_type")
        table = changes.drop_columns(["_change_type", "_commit_version", "_commit_timestamp"])
        rows = table.filter(_is_in(kinds, _ROWS))
        deletes = self._without(table.filter(_is_in(kinds, _DELETES)), rows)
        first = 0
        for part, op in ((deletes, "delete"), (rows, "row")):
            ordered = _sorted(part)
            ops = pa.array([op] * ordered.num_rows, pa.string())
            ordered = ordered.append_column(OP.name, ops)
            for batch in ordered.combine_chunks().to_batches(_CHUNK_ROWS):
                yield self._chunk(batch, first)
                first += batch.num_rows

    def _without(self, deletes: pa.Table, rows: pa.Table) -> pa.Table:
        """Return the deletes whose keys no row brings again."""
        columns = column_map(deletes.column_names, self._stream, self._options)
        names = [columns[name] for name in self._stream.key]
        keys = set(zip(*(rows.column(name).to_pylist() for name in names), strict=True))
        keep = [
            key not in keys
            for key in zip(*(deletes.column(name).to_pylist() for name in names), strict=True)
        ]
        return deletes.filter(pa.array(keep, pa.bool_()))


def _is_in(kinds: pa.ChunkedArray, names: tuple[str, ...]) -> pa.ChunkedArray:
    return pc.is_in(kinds, value_set=pa.array(names, kinds.type))


def _sorted(table: pa.Table) -> pa.Table:
    """Return the table sorted by all columns that have an order."""
    names = [f.name for f in table.schema if not pa.types.is_nested(f.type)]
    return table.sort_by([(name, "ascending") for name in names]) if names else table


def _storage_options(settings: Any) -> dict[str, str]:
    path = settings.path("settings_file")
    try:
        options = json.loads(path.read_text())
    except (OSError, ValueError):
        # The text of the error could show what the file holds.
        raise BadSettings(f"{path} is not a JSON object of storage options") from None
    return {str(key): str(value) for key, value in options.items()}
