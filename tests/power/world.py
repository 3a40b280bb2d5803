"""Clients of a store under power cuts: what they send, and what the store must hold afterwards.

The publisher and sequence of a batch determine its rows. `Clients` marks in the journal what the
store acknowledged; `check` compares a store that was cut.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from client_sdk import Client, PsoupError
from tests.power.recorder import Journal

STREAMS = ("s", "t")
PUBLISHERS = ("ann", "bob")
# The engine has work during the whole run, and not all at once.
_PAUSE = 0.2


def batch(publisher: str, sequence: int) -> list[dict[str, Any]]:
    return [{"p": publisher, "n": sequence, "i": i} for i in range(1 + sequence % 4)]


class Clients:
    """Send until `enough` returns True. Publisher and sequences belong to one stream each."""

    def __init__(self, target: str, journal: Journal) -> None:
        self._target = target
        self._journal = journal
        self._sent = dict.fromkeys(PUBLISHERS, 0)
        self._queries = 0

    def define(self, stream: str) -> None:
        with Client(self._target) as client:
            client.define(f"CREATE STREAM {stream} (p TEXT, n BIGINT, i BIGINT)")
        self._journal.mark(["defined", stream])

    def work(self, enough: Callable[[], bool]) -> None:
        """Run all clients at once."""
        with ThreadPoolExecutor() as pool:
            pairs = zip(STREAMS, PUBLISHERS, strict=True)
            tasks = [pool.submit(self._publish, *pair, enough) for pair in pairs]
            tasks.append(pool.submit(self._register, enough))
        for task in tasks:
            task.result()

    def _publish(self, stream: str, publisher: str, enough: Callable[[], bool]) -> None:
        with Client(self._target) as client:
            while not enough():
                self._sent[publisher] += 1
                sequence = self._sent[publisher]
                rows = batch(publisher, sequence)
                sent = client.publish(stream, rows, publisher=publisher, sequence=sequence)
                self._journal.mark(["published", publisher, sequence, sent.first_row_id])
                time.sleep(_PAUSE)

    def _register(self, enough: Callable[[], bool]) -> None:
        with Client(self._target) as client:
            while not enough():
                self._queries += 1
                stream = STREAMS[self._queries % len(STREAMS)]
                registration = client.register(
                    f"SELECT p, n, i FROM {stream} WHERE n > {self._queries}"
                )
                self._journal.mark(["registered", stream, self._queries, registration.handle.hex()])
                time.sleep(_PAUSE)


def check(target: str, marks: Iterable[Any]) -> None:
    """Assert that acknowledged rows are stored once and answers are right; publish more."""
    marks_by_kind: dict[str, list[Any]] = defaultdict(list)
    for kind, *values in marks:
        marks_by_kind[kind].append(values)
    with Client(target) as client:
        rows = {stream: _rows(client, stream, marks_by_kind) for stream in STREAMS}
        for stream, publisher in zip(STREAMS, PUBLISHERS, strict=True):
            acknowledged = {
                n: first for p, n, first in marks_by_kind["published"] if p == publisher
            }
            _check_batches(rows[stream], publisher, acknowledged)
        for stream, limit, handle in marks_by_kind["registered"][-20:]:
            answer_rows = client.invoke(bytes.fromhex(handle)).rows
            expected = [row[:3] for row in rows[stream] if row[1] > limit]
            assert sorted(tuple(row.values()) for row in answer_rows) == sorted(expected), (
                stream,
                limit,
            )
        for stream, publisher in zip(STREAMS, PUBLISHERS, strict=True):
            if [stream] in marks_by_kind["defined"]:
                _go_on(client, stream, publisher, rows[stream])


BatchRows = list[tuple[str, int, int, int]]


def _rows(client: Client, stream: str, marks_by_kind: dict[str, list[Any]]) -> BatchRows:
    try:
        answer = client.ask(f"SELECT p, n, i, row_id FROM {stream}")
    except PsoupError:
        if [stream] in marks_by_kind["defined"]:
            raise
        return []
    return [tuple(row.values()) for row in answer.rows]


def _check_batches(rows: BatchRows, publisher: str, acknowledged: dict[int, int]) -> None:
    """Assert that batches are whole and in order, and that no acknowledged one is missing."""
    by_batch: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for p, n, i, row_id in rows:
        assert p == publisher
        by_batch[n].append((i, row_id))
    assert sorted(by_batch) == list(range(1, len(by_batch) + 1))
    assert acknowledged.keys() <= by_batch.keys()
    for n, batch_rows in by_batch.items():
        first = min(row_id for _, row_id in batch_rows)
        assert sorted(batch_rows) == [(i, first + i) for i in range(len(batch(publisher, n)))]
        assert acknowledged.get(n, first) == first


def _go_on(client: Client, stream: str, publisher: str, rows: BatchRows) -> None:
    last = max((n for _, n, _, _ in rows), default=0)
    if last:
        again = client.publish(stream, batch(publisher, last), publisher=publisher, sequence=last)
        assert again.duplicate
    more = batch(publisher, last + 1)
    sent = client.publish(stream, more, publisher=publisher, sequence=last + 1)
    assert sent.first_row_id == len(rows)
