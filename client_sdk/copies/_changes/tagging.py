"""Tags: the smallest set of changes that leads from one answer to the next.

Two rows are the same row if they have the same id, or the same key: that of a keyed stream, or the
keys of all rows that a combination is made of. So each row changes at most once: it is new (`+`),
it has other values (`u`), or it was removed (`-`). The id of a combination of rows is no identity:
equal combinations that were removed and added cancel. Rows are as the file holds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from client_sdk.copies._file.checksums import HEAD, SINCE_EVER, StoredRow
from client_sdk.copies._file.records import Shape

Tag = Literal["+", "u", "-", "skip"]
Why = Literal["new", "changed", "left", "ended", "gone", "own", "retention", "too many", "no copy"]

_ROW_ID, _FROM, _UNTIL, _SORT_KEY = range(4)


@dataclass(frozen=True, slots=True)
class TaggedRow:
    """A change in stored values. `row` is the row now and `old` the row before, or None.

    The tag "skip" is no change: refresh points between the change before and the instant `at` were
    left out, for the reason `why`.
    """

    tag: Tag
    why: Why
    at: int | None
    row: Sequence[Any] | None
    old: Sequence[Any] | None


@dataclass(frozen=True, slots=True)
class Passage:
    """The step from an answer to the next one, which is visible at `now`.

    `at` is the NOW of the sync that received it. Rows with the ids `ended` are gone because a
    stream key was updated or deleted. Rows with the ids `waiting` were in the file and entered by
    time. Keys in `twins` are on several rows of the next answer, and identify none of them. After a
    `whole` answer ids may differ from before. Unless `reports_left`, rows that left their window
    are not reported. Rows with the `own_ids` are own edits; None if these are not reported. It is
    `synced` unless time and own edits alone make the step.
    """

    shape: Shape
    now: int | None
    at: int | None
    ended: Collection[int] = ()
    waiting: Collection[int] = ()
    twins: Collection[int] = ()
    whole: bool = False
    reports_left: bool = True
    own_ids: Collection[int] | None = None
    synced: bool = True

    def tags(self, old: Sequence[StoredRow], new: Sequence[StoredRow]) -> list[TaggedRow]:
        """Return the changes from rows of the answer before to rows of the next one, in order."""
        # A whole answer may give equal rows other ids, and pairing by id would then report changes.
        if self.whole and not self.shape.keyed:
            old, new = _without_equal(old, new)
        befores, afters = {row[_ROW_ID]: row for row in old}, {row[_ROW_ID]: row for row in new}
        # Pairs of sort key and change.
        changes: list[tuple[tuple[Any, ...], TaggedRow]] = []
        for before, after in self._pairs(befores, afters):
            del befores[before[_ROW_ID]], afters[after[_ROW_ID]]
            if self._values(before) != self._values(after):
                changes += self._changed(before, after)
        # The rows that remain have no counterpart on the other side.
        removed, added = [*befores.values()], [*afters.values()]
        if self.shape.combined:
            removed, added = self._without_equal_values(removed, added)
        changes += [self._removal(row) for row in removed]
        changes += [self._addition(row) for row in added]
        changes.sort(key=lambda change: change[0])
        tagged_rows = [tagged for _, tagged in changes]
        return [tagged for tagged in tagged_rows if self.reports_left or tagged.why != "left"]

    def _without_equal_values(
        self, removed: Sequence[StoredRow], added: Sequence[StoredRow]
    ) -> tuple[list[StoredRow], list[StoredRow]]:
        """Leave out rows that were removed and added with equal values, as often as both happened.

        Rows that time alone removed stay: they left at an instant of their own. So do rows whose
        leaving is not reported: otherwise their equals would not be reported as new.
        """
        staying = [row for row in removed if self._expired(row) or self._is_unreported(row)]
        candidates = [
            row for row in removed if not (self._expired(row) or self._is_unreported(row))
        ]
        values = self._content_values
        both = Counter(map(values, candidates)) & Counter(map(values, added))
        return [*staying, *_minus(candidates, both.copy(), values)], _minus(added, both, values)

    def _is_unreported(self, row: StoredRow) -> bool:
        return not self.reports_left and self._why(row) == "left"

    def _content_values(self, row: StoredRow) -> tuple[Any, ...]:
        return tuple(self._values(row))

    def _pairs(
        self, befores: dict[int, StoredRow], afters: dict[int, StoredRow]
    ) -> list[tuple[StoredRow, StoredRow]]:
        """Return the pairs of rows that are one row before and after."""
        # Equal ids are paired first; only the remaining rows are paired by their key.
        same = befores.keys() & afters.keys()
        pairs = [(befores[row_id], afters[row_id]) for row_id in same]
        if self.shape.keyed:
            removed = _by_key(row for row_id, row in befores.items() if row_id not in same)
            added = _by_key(row for row_id, row in afters.items() if row_id not in same)
            names = (removed.keys() & added.keys()).difference(self.twins)
            pairs += [(removed[name], added[name]) for name in names]
        return pairs

    def _changed(
        self, before: StoredRow, after: StoredRow
    ) -> list[tuple[tuple[Any, ...], TaggedRow]]:
        """Return the changes for other values of one row. A row of an unkeyed stream never has
        others.
        """
        if not (self.shape.keyed or self.shape.by_checksum):
            return [self._removal(before), self._addition(after)]
        values = self._values(after), self._values(before)
        why: Why = "own" if self._is_own(after) or self._was_own(before) else "changed"
        return [self._with_sort_key(TaggedRow("u", why, self.at, *values), after)]

    def _addition(self, row: StoredRow) -> tuple[tuple[Any, ...], TaggedRow]:
        begin = row[_FROM]
        # A row that became visible after the NOW of the sync entered by time, at its own instant.
        # So did a row that waited in the file.
        ahead = begin is not None and self.at is not None and begin > self.at
        if self._is_own(row):
            return self._with_sort_key(TaggedRow("+", "own", self.at, self._values(row), None), row)
        at = begin if ahead or row[_ROW_ID] in self.waiting else self.at
        return self._with_sort_key(TaggedRow("+", "new", at, self._values(row), None), row)

    def _removal(self, row: StoredRow) -> tuple[tuple[Any, ...], TaggedRow]:
        at, why = self.at, self._why(row)
        if why == "left" and self._expired(row):
            at = row[_UNTIL]
        return self._with_sort_key(TaggedRow("-", why, at, None, self._values(row)), row)

    def _is_own(self, row: StoredRow) -> bool:
        return self.own_ids is not None and row[_ROW_ID] in self.own_ids

    def _was_own(self, row: StoredRow) -> bool:
        """Return whether a reported row was an own edit that the store has not taken."""
        return self.own_ids is not None and row[_ROW_ID] < 0

    def _why(self, row: StoredRow) -> Why:
        if self._was_own(row):
            return "own"
        if self.own_ids is not None and not self.synced and not self._expired(row):
            # Neither a sync nor time has removed it, so an own delete has.
            return "own"
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
    def _with_sort_key(tagged: TaggedRow, row: StoredRow) -> tuple[tuple[Any, ...], TaggedRow]:
        """Return the change after its sort key: by instant, removed rows first, then in the
        answer's order.
        """
        at = SINCE_EVER if tagged.at is None else tagged.at
        begin = SINCE_EVER if row[_FROM] is None else row[_FROM]
        return (at, tagged.tag != "-", row[_SORT_KEY], begin, row[_ROW_ID]), tagged


def _by_key(rows: Iterator[StoredRow]) -> dict[Any, StoredRow]:
    """Return the rows by their keys, without those whose key is on several."""
    all_rows = list(rows)
    counts = Counter(row[-1] for row in all_rows)
    return {row[-1]: row for row in all_rows if counts[row[-1]] == 1}


def _without_equal(
    old: Sequence[StoredRow], new: Sequence[StoredRow]
) -> tuple[list[StoredRow], list[StoredRow]]:
    """Leave out rows that are in both, except for their ids, as often as they are in both."""
    # The intersection of two multisets. It is copied for the first use, since `_minus` uses it up.
    both = Counter(map(_content, old)) & Counter(map(_content, new))
    return _minus(old, both.copy(), _content), _minus(new, both, _content)


def _minus(
    rows: Sequence[StoredRow],
    counts: Counter[Any],
    content_of: Callable[[StoredRow], tuple[Any, ...]],
) -> list[StoredRow]:
    """Return the rows without as many of each content as `counts` has. Uses up `counts`."""
    remaining = []
    for row in rows:
        content = content_of(row)
        if counts[content]:
            counts[content] -= 1
        else:
            remaining.append(row)
    return remaining


def _content(row: StoredRow) -> tuple[Any, ...]:
    # The checksum is left out with the id, because it covers the id.
    return (*row[_FROM : HEAD - 1], *row[HEAD:])
