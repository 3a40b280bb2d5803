"""A reader of changes: applies them to what it has, and must have what the copy is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from client_sdk import AnswerChange, ChangeBatch, Copies

Row = dict[str, Any]
Identity = Callable[[Row], Any]


@dataclass
class ChangeReader:
    """A reader of one copy. `rows` is None before it has taken the answer to begin with.

    `identity` returns what may change at most once between two syncs, if the columns identify it.
    """

    name: str
    identity: Identity | None = None
    rows: Counter[Any] | None = None
    numbers: list[int] = field(default_factory=list)
    resets: list[str] = field(default_factory=list)

    def read(self, copies: Copies, *, syncs: int | None = None) -> list[AnswerChange]:
        """Read a batch without taking it; `syncs` is the number of syncs since the last, if
        known."""
        with copies.changes(self.name) as batch:
            self.take(batch)
        self.check(copies)
        if syncs is not None and syncs <= 1 and not batch.reset:
            self._check_least(batch)
        return list(batch)

    def take(self, batch: ChangeBatch) -> None:
        for number in [change.number for change in batch]:
            assert not self.numbers or number > self.numbers[-1]
            self.numbers.append(number)
        if batch.reset:
            assert batch.answer is not None
            self.resets.append(batch.reset)
            self.rows = counted(batch.answer)
            return
        for change in batch:
            self._apply(change)

    def check(self, copies: Copies) -> None:
        """What was read comes to what the copy is at the same NOW."""
        if not copies[self.name].synced:
            return
        answer = counted(copies[self.name].rows())
        if self.rows is None:
            assert not self.numbers
            self.rows = answer
        assert self.rows == answer

    def _apply(self, change: AnswerChange) -> None:
        assert self.rows is not None
        assert change.row != change.old and len(plain(change)) > 0
        assert (change.row is None, change.old is None) == {
            "+": (False, True),
            "u": (False, False),
            "-": (True, False),
        }[change.tag]
        if change.old is not None:
            old = values(change.old)
            assert self.rows[old] > 0, f"{change} is of a row that was not there"
            self.rows[old] -= 1
        if change.row is not None:
            self.rows[values(change.row)] += 1
        self.rows = +self.rows

    def _check_least(self, batch: Sequence[AnswerChange]) -> None:
        """No identity changes twice, and no row goes and comes again."""
        if self.identity is None:
            return
        named = Counter(self.identity(change.row or change.old or {}) for change in batch)
        assert all(count == 1 for count in named.values()), batch


def plain(change: AnswerChange) -> tuple[Any, ...]:
    """Return a change without its number and its instant."""
    return change.tag, change.row, change.old, change.why


def values(row: Row) -> tuple[Any, ...]:
    return tuple("NaN" if value != value else value for value in row.values())


def counted(rows: Sequence[Row]) -> Counter[Any]:
    return Counter(map(values, rows))
