"""Rooms that are measured, and a copy of the hot ones whose changes are read."""

from __future__ import annotations

from client_sdk import AnswerChange, Copies
from tests.support.client_sdk.inside import InsideStore

ROOMS = "CREATE STREAM rooms (room TEXT, temp BIGINT) KEY (room) RETAIN 1 DAY"
HOT = "SELECT room, temp FROM rooms WHERE temp > 80"


def read(copies: Copies, name: str) -> list[AnswerChange]:
    with copies.changes(name) as batch:
        assert not batch.reset
        return list(batch)


def short(changes: list[AnswerChange]) -> list[str]:
    """A change as the papers write it: +<a, 99>, u<a, 95>, -<a, 95>."""
    return [
        f"{change.tag}{' '.join(str(value) for value in (change.row or change.old or {}).values())}"
        for change in changes
    ]


def measure(store: InsideStore, copies: Copies, room: str, temp: int) -> None:
    store.wait(1)
    store.client.publish("rooms", [{"room": room, "temp": temp}])
    copies.sync(store.client)
