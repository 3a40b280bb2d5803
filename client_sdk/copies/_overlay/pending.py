"""The status of own edits, by the stream key or the id of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from client_sdk.copies._file import sqlite
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._overlay import own_rows
from client_sdk.copies._overlay.overlaid import Moment, OwnPiece, Status, overlay_at, own_pieces
from client_sdk.copies._overlay.own_rows import Shown
from client_sdk.copies._queue.batches import HEARTBEAT, Piece, rows_of


def pending_of(connection: sqlite.Connection, record: Record, moment: Moment) -> dict[Any, Status]:
    """Return the status of each own edit of a copy, by its stream key or, without one, its row id.

    A key of several columns is a tuple.
    """
    copy = own_rows.shown_copy(connection, record)
    if copy is None:
        return {}
    overlay = overlay_at(connection, record, moment, rejected=True)
    unchecked = overlay.unchecked if overlay is not None else frozenset()
    evaluated = {row.row_id for row in own_rows.read(connection, copy)}
    statuses: dict[Any, Status] = {}
    for piece in own_pieces(connection, copy):
        if piece.kind == HEARTBEAT:
            continue
        ids = range(piece.first_row, piece.first_row + piece.row_count)
        for row_id, name in zip(ids, _names(connection, copy, piece, ids), strict=True):
            is_checked = row_id in evaluated and row_id not in unchecked
            is_certain = is_checked or piece.status == "rejected"
            statuses.pop(name, None)
            statuses[name] = piece.status if is_certain else "unchecked"
    return statuses


def _names(
    connection: sqlite.Connection, copy: Shown, piece: OwnPiece, ids: range
) -> Sequence[Any]:
    """Return what each row of a piece is called: its stream key, or its id without one."""
    key = copy.query.schema.key
    if not key:
        return ids
    payload = connection.execute(
        "SELECT payload FROM _psoup_queue WHERE first_row = ?", (piece.first_row,)
    ).fetchone()[0]
    try:
        rows = rows_of(Piece(piece.kind, payload, piece.row_count))
        if isinstance(rows, list):
            columns = [[row[name] for row in rows] for name in key]
        else:
            columns = [rows.column(name).to_pylist() for name in key]
    except (KeyError, ValueError):
        # Rows that were not checked may lack the key, and a damaged piece can't be read.
        return ids
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
