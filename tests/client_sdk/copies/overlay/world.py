"""Devices that edit the streams of one store while they are away, and the store as their oracle.

A device's answer with its own edits must be the one that the store gives when it has been given
the batches: before they are sent, when they were acknowledged, and when they have come back.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from client_sdk import Copies
from tests.support.client_sdk.inside import InsideStore

STREAMS = {
    "arrivals": "CREATE STREAM arrivals (id BIGINT, a BIGINT, b TEXT) RETAIN 60 SECONDS",
    "events": "CREATE STREAM events (id BIGINT, a BIGINT, b TEXT, at TIMESTAMP) ORDERED BY at "
    "AHEAD 1 HOUR RETAIN 60 SECONDS",
    "places": "CREATE STREAM places (id BIGINT, a BIGINT, b TEXT) KEY (id)",
    "states": "CREATE STREAM states (id BIGINT, a BIGINT, b TEXT, at TIMESTAMP) KEY (id, b) "
    "ORDERED BY at RETAIN 60 SECONDS",
}
KEYS = {"places": ("id",), "states": ("id", "b")}
TIMED = ("events", "states")
TEXTS = ("x", "y", "z")

# What follows FROM, and whether the rows come from base rows.
ANSWERS = [
    ("SELECT id, a, b FROM {}", False),
    ("SELECT id, a * 2 AS double, b FROM {} WHERE a > 4", False),
    ("SELECT id, b FROM {} WHERE b <> 'x' ORDER BY a DESC, b RANGE 20 SECONDS", False),
    ("SELECT a, b FROM {} BEGIN NOW - 40 SECONDS END NOW - 5 SECONDS", False),
    ("SELECT id, a, b FROM {} ROWS 4", False),
    ("SELECT b, count(*) AS n, sum(a) AS total, last(a) AS last FROM {} GROUP BY b", True),
    ("SELECT DISTINCT b FROM {} WHERE a > 3 RANGE 30 SECONDS", True),
    ("SELECT id, a FROM {} ORDER BY a, b DESC LIMIT 3", True),
    ("SELECT max(a) AS most, min(b) AS first FROM {} ROWS 3", True),
    ("SELECT id, ts, b FROM {} WHERE ts + (a - 5) * INTERVAL '3' SECOND < NOW AND b <> 'x'", False),
    ("SELECT id, a FROM {} WHERE ts + a * INTERVAL '4' SECOND > NOW ORDER BY a DESC", False),
    (
        "SELECT b, count(*) AS n FROM {} WHERE NOW - ts < INTERVAL '25' SECOND "
        "AND ts + a * INTERVAL '2' SECOND >= NOW GROUP BY b",
        True,
    ),
]
UNKEYED_ANSWERS = [
    ("SELECT a, b FROM {} RANGE 20 SECONDS SLIDE 3 SECONDS", False),
    ("SELECT a, b FROM {} ROWS 2 PARTITION BY b", False),
]
TS_ANSWERS = [
    ("SELECT a, date_trunc('second', ts) AS second FROM {} ORDER BY ts DESC", False),
]


# Rows of answers, by the names of copies.
Answers = dict[str, list[tuple[Any, ...]]]


@dataclass
class Kept:
    stream: str
    text: str
    base_rows: bool

    @property
    def counts_keys(self) -> bool:
        """True if a delete leaves a place in the window, whose next row the copy does not have."""
        return self.stream in KEYS and " ROWS " in self.text


def all_answers() -> Iterator[Kept]:
    for stream in STREAMS:
        more = [] if stream in KEYS else UNKEYED_ANSWERS
        for text, base_rows in [*ANSWERS, *more, *TS_ANSWERS]:
            yield Kept(stream, text.format(stream), base_rows)


@dataclass
class World:
    """A store and devices.

    `compared` counts answers, `changed` those of them that own edits had changed, and `skipped`
    those of which a copy can't know what the store would make.
    """

    folder: Path
    chance: random.Random
    devices_count: int = 3
    answers: list[Kept] = field(default_factory=lambda: list(all_answers()))
    compared: int = 0
    changed: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self.store = InsideStore(self.folder, sync_bytes=4000)
        for sql in STREAMS.values():
            self.store.client.define(sql)
        self.devices = [self._open(number) for number in range(self.devices_count)]
        for device in self.devices:
            device.sync(self.store.client)
        # The streams that each device has waiting edits of, and whether deletes are among them.
        self.waiting: list[set[str]] = [set() for _ in self.devices]
        self.deletes = [False] * len(self.devices)

    def _open(self, number: int) -> Copies:
        device = Copies(self.folder / f"device{number}.db", clock=self.store.now)
        for place, declared in enumerate(self.answers):
            name = f"c{place}"
            device.keep(name, declared.text, base_rows=declared.base_rows, edits=True)
        return device

    def close(self) -> None:
        for device in self.devices:
            device.close()
        self.store.close()

    # ---- what happens

    def wait(self) -> None:
        self.store.wait(self.chance.choice((0, 0.5, 1, 3, 7, 20)))

    def rows(self, stream: str, deletes: bool) -> list[dict[str, Any]]:
        count = self.chance.randint(1, 4)
        rows = [self._row(stream) for _ in range(count)]
        if stream in KEYS and deletes:
            for row in rows:
                if self.chance.random() < 0.4:
                    row["_op"] = "delete"
        return rows

    def _row(self, stream: str) -> dict[str, Any]:
        row: dict[str, Any] = {
            "id": self.chance.randrange(6),
            "a": self.chance.randrange(10),
            "b": self.chance.choice(TEXTS),
        }
        if stream in TIMED:
            row["at"] = self._instant()
        return row

    def _instant(self) -> datetime:
        late = self.chance.choice((0, 0, 0, 1, 10, 30))
        return self.store.now() - timedelta(seconds=late + self.chance.random())

    def edit(self, device: Copies, stream: str, deletes: bool) -> None:
        if stream in TIMED and self.chance.random() < 0.1:
            device.heartbeat(stream, self.store.now())
        else:
            device.publish(stream, self.rows(stream, deletes))

    # ---- one device is away, and comes back

    def turn(self) -> None:
        """Let others write, bring a device up to date, edit there, and compare before and after
        sending. Sometimes the device stays away with its edits.
        """
        client = self.store.client
        for _ in range(self.chance.randrange(3)):
            stream = self.chance.choice(list(STREAMS))
            client.publish(stream, self.rows(stream, deletes=True))
            self.wait()
        number = self.chance.randrange(len(self.devices))
        device, streams = self.devices[number], self.waiting[number]
        device.sync(client, send=False)
        deletes = self.chance.random() < 0.5
        self.deletes[number] |= deletes
        for _ in range(self.chance.randint(1, 3)):
            stream = self.chance.choice(list(STREAMS))
            streams.add(stream)
            self.edit(device, stream, deletes)
            self.wait()
        if self.chance.random() < 0.3:
            # It stays away, and others write before it comes back.
            return
        deletes, self.deletes[number] = self.deletes[number], False
        edited = [name for name in device if self._stream(name) in streams]
        visible_rows = self._shown(device, edited)
        plain = self._shown(device, edited, queued=False)
        names = [name for name in edited if self._is_exact(device, name, deletes)]
        self.skipped += len(edited) - len(names)
        device.send(client)
        between = self._shown(device, edited)
        answers = self._answers(device, edited)
        for name in names:
            assert visible_rows[name] == answers[name], (self._about(name), "queued")
            assert between[name] == answers[name], (self._about(name), "sent")
        streams.clear()
        device.sync(client)
        after = self._shown(device, edited)
        for name in visible_rows:
            assert after[name] == answers[name], (self._about(name), "synced")
            assert device[name].pending == {}
        self.compared += 2 * len(names)
        self.changed += 2 * sum(visible_rows[name] != plain[name] for name in names)
        with device._file.reading() as connection:
            assert connection.execute("SELECT count(*) FROM _psoup_queue").fetchone() == (0,)

    def _stream(self, name: str) -> str:
        return self.answers[int(name[1:])].stream

    def _shown(self, device: Copies, names: list[str], *, queued: bool = True) -> Answers:
        return {
            name: [tuple(row.values()) for row in device[name].rows(queued=queued)]
            for name in names
        }

    def _answers(self, device: Copies, names: list[str]) -> Answers:
        answers = {}
        for name in names:
            handle = device[name].handle
            assert handle is not None
            rows = self.store.client.invoke(handle).rows
            answers[name] = [tuple(row.values()) for row in rows]
        return answers

    def _is_exact(self, device: Copies, name: str, deletes: bool) -> bool:
        declared = self.answers[int(name[1:])]
        if declared.counts_keys and deletes:
            return False
        return "unchecked" not in device[name].pending.values()

    def _about(self, name: str) -> str:
        return self.answers[int(name[1:])].text
