"""The papers' keyed streams as rows to publish, and what they say is current."""

from __future__ import annotations

from typing import Any

# PIPES, Table VI, S1: each value with its validity [start, end).
TABLE_VI = [("c", 1, 8), ("a", 5, 11), ("d", 6, 14), ("a", 9, 10), ("b", 12, 17)]
WORTH = {"a": 1, "b": 10, "c": 100, "d": 1000}
PIPES_SQL = (
    "CREATE STREAM s (id BIGINT, value TEXT, worth BIGINT, at TIMESTAMP) KEY (id) ORDERED BY at"
)
# PIPES, Table VIII: SUM over S1, valid in [start, end).
TABLE_VIII = [
    (1, 5, 100),
    (5, 6, 101),
    (6, 8, 1101),
    (8, 9, 1001),
    (9, 10, 1002),
    (10, 11, 1001),
    (11, 12, 1000),
    (12, 14, 1010),
    (14, 17, 10),
]

# SyncSQL, Example 1: the tagged stream, and R(S) at 1 to 4 as (room, temp, ts).
SYNCSQL_SQL = "CREATE STREAM rooms (room TEXT, temp BIGINT, at TIMESTAMP) KEY (room) ORDERED BY at"
EXAMPLE_1 = [("a", 99, 1), ("b", 75, 2), ("c", 80, 3), ("a", 95, 4)]
RELATION = {
    1: {("a", 99, 1)},
    2: {("a", 99, 1), ("b", 75, 2)},
    3: {("a", 99, 1), ("b", 75, 2), ("c", 80, 3)},
    4: {("a", 95, 4), ("b", 75, 2), ("c", 80, 3)},
}


def pipes_rows() -> list[dict[str, Any]]:
    """A key for each row of the table: inserted at its start, deleted at its end."""
    rows = []
    for number, (value, start, end) in enumerate(TABLE_VI):
        row = {"id": number, "value": value, "worth": WORTH[value]}
        rows += [{**row, "at": start, "_op": "row"}, {**row, "at": end, "_op": "delete"}]
    return rows


def room_rows() -> list[dict[str, Any]]:
    return [{"room": room, "temp": temp, "at": at, "_op": "row"} for room, temp, at in EXAMPLE_1]
