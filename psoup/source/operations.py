"""What is done to sources from outside: check, skip, status."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from psoup.source.connectors.partition import Context
from psoup.source.connectors.registry import make_connector
from psoup.source.errors import BadSettings
from psoup.source.feeding.piece import encode_mark
from psoup.source.runner import check_aside, check_heartbeat, source_records, source_stream
from psoup.source.settings import SourceSettings

SAMPLE_ROWS = 10


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
        sequence = record.sequence + 1 if record else 1
        publisher = client.publisher(name, next_sequence=sequence, lease=parts[name].lease)
        empty = stream.schema.empty_table()
        await publisher.publish(stream.name, empty, mark=encode_mark(position))
        return name, record.mark.decode(errors="replace") if record else ""


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
