"""Connections to PostgreSQL, with settings that make values look the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extras

from psoup.source.errors import BadSettings, SourceAway

# Texts of values are the same in snapshots and in the log, whatever the server's settings are.
_OPTIONS = (
    "-c timezone=UTC -c datestyle=ISO -c intervalstyle=iso_8601 -c bytea_output=hex "
    "-c extra_float_digits=3 -c statement_timeout=0"
)
_CONNECT_SECONDS = 10


def connect(dsn_file: Path, *, replication: bool = False) -> Any:
    """Return a connection by the file's DSN, which is read each time. Raises SourceAway."""
    try:
        dsn = dsn_file.read_text().strip()
    except OSError as error:
        raise BadSettings(f"dsn_file {dsn_file}: {error.strerror}") from None
    factory = psycopg2.extras.LogicalReplicationConnection if replication else None
    try:
        connection = psycopg2.connect(
            dsn,
            connection_factory=factory,
            options=_OPTIONS,
            connect_timeout=_CONNECT_SECONDS,
            application_name="psoup",
        )
    except psycopg2.ProgrammingError:
        # The text of the error could show the DSN.
        raise BadSettings(f"dsn_file {dsn_file} does not hold a DSN") from None
    except psycopg2.Error as error:
        raise SourceAway(f"PostgreSQL: {first_line(error)}") from None
    return connection


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def parse_lsn(text: str) -> int:
    """Return a position in the log as a number."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"
