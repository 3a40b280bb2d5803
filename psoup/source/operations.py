"""What is done to sources from outside: check, skip, replay of what was put aside, status."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from client_sdk import AsyncClient
from psoup.source.connectors.partition import Context
from psoup.source.connectors.registry import make_connector
from psoup.source.errors import BadSettings
from psoup.source.feeding.piece import decode_mark, encode_mark
from psoup.source.mapping import RowMapping, load_json
from psoup.source.readers.chunk import BadLine
from psoup.source.runner import check_aside, check_heartbeat, source_records, source_stream
from psoup.source.settings import SourceSettings

SAMPLE_ROWS = 10
_REPLAY_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check saw: lines about the source, its first rows as the stream would get them, and
    the bad ones of them.
    """

    lines: list[str]
    rows: pa.Table
    bad: list[str]


async def check_source(settings: SourceSettings) -> Checked:
    """Connect to the store and to the source, and read a few rows. Publishes nothing."""
    async with settings.store.client() as client:
        stream = await source_stream(client, settings, validate_only=True)
        check_heartbeat(settings, stream)
        await check_aside(client, settings)
        connector = make_connector(Context(settings, stream, client))
        lines = await asyncio.to_thread(connector.check)
        if not stream.id:
            lines = [*lines, f"there is no stream {stream.name} yet; run creates it"]
        records = await source_records(client, settings.name)
        piece = await asyncio.to_thread(connector.sample, records)
        table = stream.schema.empty_table() if piece is None else piece.table
        bad = [] if piece is None else [str(row) for row in piece.bad[:SAMPLE_ROWS]]
        return Checked(lines, table.slice(0, SAMPLE_ROWS), bad)


async def skip_to(settings: SourceSettings, mark: str, partition: str = "") -> tuple[str, str]:
    """Set the mark of a partition, without rows; return its publisher and the mark before."""
    async with settings.store.client() as client:
        stream = await source_stream(client, settings)
        connector = make_connector(Context(settings, stream, client))
        records = await source_records(client, settings.name)
        parts = {p.publisher: p for p in await asyncio.to_thread(connector.partitions, records)}
        name = f"{settings.name}/{partition}" if partition else next(iter(parts), "")
        if len(parts) > 1 and not partition:
            names = ", ".join(part.partition("/")[2] for part in sorted(parts))
            raise BadSettings(
                f"{settings.name} has several partitions; give --partition of {names}"
            )
        if name not in parts:
            raise BadSettings(
                f"{settings.name} has no partition {partition}"
                if partition
                else f"nothing of {settings.name} waits to be read, so there is nothing to skip"
            )
        position = await asyncio.to_thread(parts[name].begin, mark)
        record = records.get(name)
        publisher = client.publisher(name, next_sequence=record.sequence + 1 if record else 1)
        empty = stream.schema.empty_table()
        await publisher.publish(stream.name, empty, mark=encode_mark(position))
        return name, record.mark.decode(errors="replace") if record else ""


async def replay_aside(settings: SourceSettings) -> tuple[int, list[str]]:
    """Publish rows that were put aside and fit by now; return how many, and why others do not.

    Each is published once: the mark of the publisher `NAME/replay` is the last row that was tried.
    """
    if not settings.aside:
        raise BadSettings(f"{settings.name} puts no rows aside")
    async with settings.store.client() as client:
        stream = await source_stream(client, settings)
        mapping = RowMapping(stream, settings.columns, settings.parse)
        name, problems, count = f"{settings.name}/replay", list[str](), 0
        record = (await source_records(client, settings.name)).get(name)
        row_id = int(decode_mark(record.mark)["row_id"]) if record else -1
        publisher = client.publisher(name, next_sequence=record.sequence + 1 if record else 1)
        while rows := await _aside_rows(client, settings, row_id):
            values, bad = list[dict[str, Any]](), dict[int, BadLine]()
            for place, row in enumerate(rows):
                try:
                    values.append(mapping.row(_fields(row["raw"]), {}))
                except ValueError as error:
                    values.append({})
                    bad[place] = BadLine(place, "", row["raw"][:200], str(error))
            chunk = mapping.chunk(values, range(len(rows)), bad)
            problems += [f"{rows[b.record]['place']}: {b.why}" for b in chunk.bad]
            row_id = rows[-1]["row_id"]
            mark = encode_mark({"row_id": row_id})
            published = await publisher.publish(stream.name, chunk.table, mark=mark)
            count += published.row_count
        return count, problems


async def _aside_rows(
    client: AsyncClient, settings: SourceSettings, row_id: int
) -> Sequence[Mapping[str, Any]]:
    answer = await client.ask(
        f"SELECT row_id, place, raw FROM {settings.aside} "
        "WHERE source LIKE :prefix AND row_id > :last ORDER BY row_id",
        parameters={"prefix": f"{_escaped(settings.name)}/%", "last": row_id},
    )
    return list(answer)[:_REPLAY_ROWS]


def _escaped(name: str) -> str:
    return name.replace("_", "\\_")


def _fields(raw: str) -> dict[str, Any]:
    fields = load_json(raw.encode())
    if not isinstance(fields, dict):
        raise ValueError("is not a JSON object")
    return fields


async def lag_of(
    settings: SourceSettings,
) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """Return the mark, the rows and the lag of each publisher of a source; and its lag as a whole,
    if it is not of one publisher.
    """
    async with settings.store.client() as client:
        stream = await source_stream(client, settings, validate_only=True)
        records = await source_records(client, settings.name)
        connector = make_connector(Context(settings, stream, client))
        lags = await asyncio.to_thread(connector.lag, records)
        publishers = {
            name: {
                "rows": record.row_count,
                "published_at": record.published_at,
                "mark": record.mark.decode(errors="replace"),
                "lag": lags[name].amounts() if name in lags else {},
            }
            for name, record in records.items()
        }
        whole = lags.get(settings.name)
        return publishers, whole.amounts() if whole else {}
