"""Means that tests of copies share."""

from __future__ import annotations

from datetime import timedelta

from client_sdk import Column, Stream
from datastem.schema import StreamSchema
from querystem.language import stream_sql


def wire(schema: StreamSchema) -> Stream:
    """A stream as the store describes it."""
    retain = None if schema.retain is None else timedelta(microseconds=schema.retain)
    return Stream(
        name=schema.name,
        id=1,
        columns=tuple(Column(column.name, str(column.type)) for column in schema.columns),
        ordered_by=schema.ordered_by,
        retain=retain,
        ahead=timedelta(hours=1),
        row_count=0,
        now=None,
        sql=stream_sql(schema),
        registration_count=0,
        key=schema.key,
    )
