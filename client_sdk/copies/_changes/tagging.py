"""Tags: the least that leads from one answer to the next.

A row is what it was before where it has the same id, or in a keyed stream the same key. So each
identity changes once at most: it came (`+`), it has other values (`u`), or it is gone (`-`). The id
of a combination of rows is no identity: of those that went and came, equal ones cancel. Rows are as
the file holds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from client_sdk.copies._file.checksums import HEAD, SINCE_EVER, StoredRow
from client_sdk.copies._file.records import Shape

Tag = Literal["+", "u", "-"]
Why = Literal["new", "changed", "left", "ended", "gone"]

_ROW_ID, _FROM, _UNTIL, _SORT_KEY = range(4)


@dataclass(frozen=True, slots=True)
class TaggedRow:
    """A change in stored values. `row` is the row now and `old` the row before, None without."""

    tag: Tag
    why: Why
    at: int | None
    row: Sequence[Any] | None
    old: Sequence[Any] | None


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage leads from an answer to the next one, which is seen at `now`.

    `at` is the NOW of the sync that brought it. Rows with the ids `ended` are gone because a key
    was updated or deleted. Rows with the ids `waiting` were there and entered by time. Keys of
    `twins` are on several rows of the next answer, and name none of them. After a `whole` answer
    ids may be others than before. Unless `left_told`, it is not told which rows left their window.
    """

    shape: Shape
    now: int | None
    at: int | None
    ended: Collection[int] = ()
    waiting: Collection[int] = ()
    twins: Collection[int] = ()
    whole: bool = False
    left_told: bool = True

    def tags(self, old: Sequence[StoredRow], new: Sequence[StoredRow]) -> list[TaggedRow]:
        """Tag the difference between rows of the answer before and rows of the next one."""
        if self.whole and not self.shape.keyed:
            old, new = _without_equal(old, new)
        befores, afters = {row[_ROW_ID]: row for row in old}, {row[_ROW_ID]: row for row in new}
        found: list[tuple[tuple[Any, ...], TaggedRow]] = []
        for before, after in self._pairs(befores, afters):
            del befores[before[_ROW_ID]], afters[after[_ROW_ID]]
            if self._values(before) != self._values(after):
                found += self._changed(before, after)
        removed, added = [*befores.values()], [*afters.values()]
        if self.shape.combined:
            removed, added = self._without_equal_values(removed, added)
        found += [self._gone(row) for row in removed]
        found += [self._come(row) for row in added]
        found.sort(key=lambda one: one[0])
        tagged_rows = [tagged for _, tagged in found]
        return [one for one in tagged_rows if self.left_told or one.why != "left"]

    def _without_equal_values(
        self, removed: Sequence[StoredRow], added: Sequence[StoredRow]
    ) -> tuple[list[StoredRow], list[StoredRow]]:
        """Leave out rows that went and came with equal values, each as often as it did both.

        Those that time alone took away stay: they left at an instant of their own. So do those of
        which it is not told that they left, since nothing would be told of the ones that came.
        """
        staying = [row for row in removed if self._expired(row) or self._is_untold(row)]
        others = [row for row in removed if not (self._expired(row) or self._is_untold(row))]
        values = self._content_values
        both = Counter(map(values, others)) & Counter(map(values, added))
        return [*staying, *_minus(others, both.copy(), values)], _minus(added, both, values)

    def _is_untold(self, row: StoredRow) -> bool:
        return not self.left_told and self._why(row) == "left"

    def _content_values(self, row: StoredRow) -> tuple[Any, ...]:
        return tuple(self._values(row))

    def _pairs(
        self, befores: dict[int, StoredRow], afters: dict[int, StoredRow]
    ) -> list[tuple[StoredRow, StoredRow]]:
        """Find the rows that are one row before and after."""
        same = befores.keys() & afters.keys()
        pairs = [(befores[row_id], afters[row_id]) for row_id in same]
        if self.shape.keyed:
            gone = _by_key(row for row_id, row in befores.items() if row_id not in same)
            come = _by_key(row for row_id, row in afters.items() if row_id not in same)
            names = (gone.keys() & come.keys()).difference(self.twins)
            pairs += [(gone[name], come[name]) for name in names]
        return pairs

    def _changed(
        self, before: StoredRow, after: StoredRow
    ) -> list[tuple[tuple[Any, ...], TaggedRow]]:
        """Tells of other values under one identity; a row of a stream never has others."""
        if not (self.shape.keyed or self.shape.by_checksum):
            return [self._gone(before), self._come(after)]
        values = self._values(after), self._values(before)
        return [self._placed(TaggedRow("u", "changed", self.at, *values), after)]

    def _come(self, row: StoredRow) -> tuple[tuple[Any, ...], TaggedRow]:
        begin = row[_FROM]
        ahead = begin is not None and self.at is not None and begin > self.at
        at = begin if ahead or row[_ROW_ID] in self.waiting else self.at
        return self._placed(TaggedRow("+", "new", at, self._values(row), None), row)

    def _gone(self, row: StoredRow) -> tuple[tuple[Any, ...], TaggedRow]:
        at, why = self.at, self._why(row)
        if why == "left" and self._expired(row):
            at = row[_UNTIL]
        return self._placed(TaggedRow("-", why, at, None, self._values(row)), row)

    def _why(self, row: StoredRow) -> Why:
        if row[_ROW_ID] in self.ended:
            return "ended"
        if self._expired(row):
            return "left"
        if self.shape.by_checksum:
            return "gone"
        return "ended" if self.whole and self.shape.keyed else "left"

    def _expired(self, row: StoredRow) -> bool:
        until = row[_UNTIL]
        return until is not None and self.now is not None and bool(until <= self.now)

    def _values(self, row: StoredRow) -> Sequence[Any]:
        return row[HEAD : HEAD + len(self.shape.columns)]

    @staticmethod
    def _placed(tagged: TaggedRow, row: StoredRow) -> tuple[tuple[Any, ...], TaggedRow]:
        """Put changes in the order of their instants, rows that are gone first, then as the answer
        has them.
        """
        at = SINCE_EVER if tagged.at is None else tagged.at
        begin = SINCE_EVER if row[_FROM] is None else row[_FROM]
        return (at, tagged.tag != "-", row[_SORT_KEY], begin, row[_ROW_ID]), tagged


def _by_key(rows: Iterator[StoredRow]) -> dict[Any, StoredRow]:
    """Find the rows by their keys, without those whose key is on several."""
    found = list(rows)
    counts = Counter(row[-1] for row in found)
    return {row[-1]: row for row in found if counts[row[-1]] == 1}


def _without_equal(
    old: Sequence[StoredRow], new: Sequence[StoredRow]
) -> tuple[list[StoredRow], list[StoredRow]]:
    """Leave out rows that are in both but for their ids, each as often as it is in both."""
    both = Counter(map(_content, old)) & Counter(map(_content, new))
    return _minus(old, both.copy(), _content), _minus(new, both, _content)


def _minus(
    rows: Sequence[StoredRow],
    counts: Counter[Any],
    content_of: Callable[[StoredRow], tuple[Any, ...]],
) -> list[StoredRow]:
    """Return the rows without as many of each content as `counts` has, which is used up."""
    remaining = []
    for row in rows:
        content = content_of(row)
        if counts[content]:
            counts[content] -= 1
        else:
            remaining.append(row)
    return remaining


def _content(row: StoredRow) -> tuple[Any, ...]:
    return (*row[_FROM : HEAD - 1], *row[HEAD:])
