"""The ledger of a life: the rows that the store acknowledged, and its answers."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psoup.store import Position
from tests.oracle.comparing import Values
from tests.support.system.question import Question

Row = dict[str, Any]


@dataclass(frozen=True)
class TakenBatch:
    """A batch that the store acknowledged, with its row ids and position."""

    position: Position
    first_row_id: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class GivenAnswer:
    """An answer, or a copy after a sync, with its position and NOW."""

    source: str
    question: Question
    position: Position
    now: datetime | None
    values: tuple[Values, ...]


@dataclass
class Ledger:
    """The record of all actors of a life; thread-safe."""

    batches: dict[str, list[TakenBatch]] = field(default_factory=dict)
    answers: list[GivenAnswer] = field(default_factory=list)
    registered: dict[bytes, str] = field(default_factory=dict)
    tally: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, stream: str, batch: TakenBatch) -> None:
        with self._lock:
            self.batches.setdefault(stream, []).append(batch)
            self.tally["batches"] += 1
            self.tally["rows"] += len(batch.rows)

    def answer(self, answer: GivenAnswer) -> None:
        with self._lock:
            self.answers.append(answer)
            self.tally[f"answers of {answer.source}"] += 1

    def register(self, handle: bytes, sql: str) -> None:
        with self._lock:
            self.registered[handle] = sql
            self.tally["registered"] += 1

    def unregister(self, handle: bytes) -> None:
        with self._lock:
            del self.registered[handle]
            self.tally["unregistered"] += 1

    def undo(self, version: int) -> None:
        """Forget what a restore has undone: everything of later versions of the log."""
        with self._lock:
            for stream, batches in self.batches.items():
                remaining = [batch for batch in batches if batch.position.version <= version]
                self.tally["batches undone"] += len(batches) - len(remaining)
                self.batches[stream] = remaining
            answers = [answer for answer in self.answers if answer.position.version <= version]
            self.tally["answers undone"] += len(self.answers) - len(answers)
            self.answers = answers

    def count(self, what: str) -> None:
        with self._lock:
            self.tally[what] += 1

    def row_count(self, stream: str) -> int:
        with self._lock:
            return sum(len(batch.rows) for batch in self.batches.get(stream, ()))
