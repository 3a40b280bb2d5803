"""Bits that flip in a file of copies."""

from __future__ import annotations

import random
import sqlite3
import struct
from typing import Any

from client_sdk import Copies
from client_sdk.copies._file.catalog import find


def rows_table(copies: Copies, name: str) -> str | None:
    """Return the table of the visible rows; None if the copy has no rows yet."""
    with copies._file.reading() as connection:
        version = find(connection, name).version
        return None if version is None else version.table


def staged_table(copies: Copies, name: str) -> str:
    with copies._file.reading() as connection:
        stage = find(connection, name).stage
        assert stage is not None
        return stage.table


def columns_of(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def flip_in_rows(copies: Copies, name: str, chance: random.Random, column: str = "") -> str:
    """Change one value of one row; return a description, empty if there is no row."""
    with copies._file.writing() as connection:
        table, row_id = _any_row(copies, name, chance)
        if row_id is None:
            return ""
        column = column or chance.choice(columns_of(connection, table))
        where = f"FROM {table} WHERE row_id = ?"
        value = connection.execute(f"SELECT {column} {where}", (row_id,)).fetchone()[0]
        damaged = flipped(value, chance)
        update = f"UPDATE OR REPLACE {table} SET {column} = ? WHERE row_id = ?"
        connection.execute(update, (damaged, row_id))
        return f"{column} of {row_id}: {value!r} became {damaged!r}"


def flip_in_state(copies: Copies, name: str, chance: random.Random, column: str) -> str:
    with copies._file.writing() as connection:
        select = f"SELECT {column} FROM _psoup_copies WHERE name = ?"
        value = connection.execute(select, (name,)).fetchone()[0]
        if value is None:
            return ""
        damaged = flipped(value, chance)
        connection.execute(f"UPDATE _psoup_copies SET {column} = ? WHERE name = ?", (damaged, name))
        return f"{column}: {value!r} became {damaged!r}"


def lose_row(copies: Copies, name: str, chance: random.Random) -> str:
    with copies._file.writing() as connection:
        table, row_id = _any_row(copies, name, chance)
        if row_id is None:
            return ""
        connection.execute(f"DELETE FROM {table} WHERE row_id = ?", (row_id,))
        return f"{row_id} was lost"


def _any_row(copies: Copies, name: str, chance: random.Random) -> tuple[str, int | None]:
    """Return the table of the visible rows, and the id of one; None if there are no rows."""
    table = rows_table(copies, name)
    if table is None:
        return "", None
    with copies._file.reading() as connection:
        ids = [row_id for (row_id,) in connection.execute(f"SELECT row_id FROM {table}")]
    return table, chance.choice(ids) if ids else None


def flipped(value: Any, chance: random.Random) -> Any:
    """Return the value with one bit changed; NULL becomes a number."""
    match value:
        case None:
            return chance.randrange(2**40)
        case int():
            damaged = (value ^ 1 << chance.randrange(64)) & (2**64 - 1)
            return damaged - 2**64 if damaged >= 2**63 else damaged
        case float():
            bits = struct.unpack("<Q", struct.pack("<d", value))[0] ^ 1 << chance.randrange(64)
            damaged = struct.unpack("<d", struct.pack("<Q", bits))[0]
            return damaged if damaged == damaged else value + 1.0
        case str():
            return _in_bytes(value.encode(), chance).decode("latin-1")
        case bytes():
            return _in_bytes(value, chance)
    raise TypeError(type(value))


def _in_bytes(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return b"x"
    place = chance.randrange(len(content))
    bit = 1 << chance.randrange(7)
    return content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]
