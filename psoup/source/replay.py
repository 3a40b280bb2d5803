"""The replay of rows that were put aside: they are published as the first read would have done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from client_sdk import AsyncClient, AsyncPublisher, RowProblem, Stream
from psoup.formats.convert import convert_text
from psoup.source.connectors.partition import Connector, Context
from psoup.source.connectors.registry import make_connector
from psoup.source.errors import BadSettings
from psoup.source.feeding.piece import REPLAY, decode_mark, encode_mark
from psoup.source.readers.chunk import BATCH_COLUMNS, BadLine, FileChunk, build
from psoup.source.runner import check_aside, source_records, source_stream
from psoup.source.settings import SourceSettings

_PAGE_ROWS = 1000
_PAGE_BYTES = 4 << 20


async def replay_aside(settings: SourceSettings) -> tuple[int, list[str]]:
    """Publish rows that were put aside and fit by now; return how many, and why others do not.

    Each is published once: the mark of the publisher `NAME/replay` is the last row that was tried.
    """
    if not settings.aside:
        raise BadSettings(f"{settings.name} puts no rows aside")
    async with settings.store.client() as client:
        stream = await source_stream(client, settings)
        await check_aside(client, settings)
        connector = make_connector(Context(settings, stream, client))
        name, problems, count = f"{settings.name}/{REPLAY}", list[str](), 0
        record = (await source_records(client, settings.name)).get(name)
        row_id = int(decode_mark(record.mark)["row_id"]) if record else -1
        publisher = client.publisher(name, next_sequence=record.sequence + 1 if record else 1)
        while records := await _aside_rows(client, settings, row_id):
            tables, places = [stream.schema.empty_table()], list[str]()
            for aside in records:
                chunk = _chunk(connector, stream, aside)
                problems += [f"{aside['place']}: {line.why}" for line in chunk.bad]
                # A record that became several rows was put aside for one of them.
                tables.append(chunk.table)
                places += [aside["place"]] * chunk.table.num_rows
            row_id = records[-1]["row_id"]
            table = pa.concat_tables(tables, promote_options="default")
            mark = encode_mark({"row_id": row_id})
            count += await _publish(publisher, stream, table, places, mark, problems)
        return count, problems


async def _aside_rows(
    client: AsyncClient, settings: SourceSettings, row_id: int
) -> Sequence[Mapping[str, Any]]:
    """Return the next rows of the aside stream: as many as fit a batch, and one at least."""
    answer = await client.ask(
        f'SELECT row_id, place, raw, metadata FROM "{settings.aside}" '
        f"WHERE source LIKE :prefix AND row_id > :last ORDER BY row_id LIMIT {_PAGE_ROWS}",
        parameters={"prefix": f"{_escaped(settings.name)}/%", "last": row_id},
    )
    rows, size = list[Mapping[str, Any]](), 0
    for row in answer:
        size += len(row["raw"]) + len(row["metadata"] or "")
        if rows and size > _PAGE_BYTES:
            break
        rows.append(row)
    return rows


def _escaped(name: str) -> str:
    return name.replace("_", "\\_")


def _chunk(connector: Connector, stream: Stream, aside: Mapping[str, Any]) -> FileChunk:
    """Return the rows of a record that was put aside; a bad line says why it has none."""
    try:
        metadata = json.loads(aside["metadata"] or "{}")
        if "row" in metadata:
            return _row(stream, metadata["row"])
        return connector.replayed(aside["raw"], metadata)
    except (ValueError, ArithmeticError, RecursionError) as error:
        return FileChunk(stream.schema.empty_table(), (BadLine(1, "", "", str(error)),))


def _row(stream: Stream, fields: Mapping[str, str | None]) -> FileChunk:
    """Return a row of texts by columns of the stream, which may be renamed or dropped by now."""
    names = {column.name: column.name for column in (*stream.columns, *BATCH_COLUMNS)}
    names |= stream.present_names
    arrays = {
        names[name]: pa.array([text], pa.string()) for name, text in fields.items() if name in names
    }
    if not arrays:
        raise ValueError(f"has no column of stream {stream.name}")
    return build(stream, arrays, convert_text, lambda index: 1, lenient=True)


async def _publish(
    publisher: AsyncPublisher,
    stream: Stream,
    table: pa.Table,
    places: list[str],
    mark: bytes,
    problems: list[str],
) -> int:
    """Publish rows but those that the store refuses, which are noted as problems."""
    while True:
        try:
            return (await publisher.publish(stream.name, table, mark=mark)).row_count
        except RowProblem as error:
            row = error.detail.row
            if not 0 <= row < table.num_rows:
                raise
            problems.append(f"{places.pop(row)}: {error.message}")
            table = pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
