"""The rows that refresh an answer: which of them is the last, at a moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from datastem.arrays import Int64s
from datastem.blocks import BLOCK_BITS, Part
from datastem.codec import are_rows
from datastem.instants import FOR_EVER
from psoup.answers.matching.permitted_rows import MatchSource
from psoup.answers.planning.plan import Limit, Triggers


@dataclass(frozen=True, slots=True)
class TriggerRow:
    """A row that refreshes an answer."""

    ts: int
    id: int
    position: int
    stamp: int


def newest_row(
    triggers: Triggers, limits: Sequence[Limit], until: int | None, matcher: MatchSource
) -> TriggerRow | None:
    """Return the matching row with the greatest row id, of those known within the limits of a leg
    and stamped by `until`."""
    stem, high = triggers.stem, triggers.stem.high
    stamps: list[Limit] = [] if until is None else [("_stamp", until)]
    for mark, most in (*limits, *stamps):
        # Other limits count within the leg's own stream, and triggers may be of another.
        if mark in ("_stamp", "_position"):
            high = min(high, stem.high_at(mark, most)[0])
    for number in reversed(stem.numbers(triggers.oldest, FOR_EVER, high)):
        for part, places in _matching(triggers, matcher, number, high):
            return _row(part, int(places[-1]))
    return None


def latest_row(triggers: Triggers, until: int, matcher: MatchSource) -> TriggerRow | None:
    """Return the matching row with the greatest (ts, row_id), of the rows with ts up to `until`."""
    stem, best = triggers.stem, None
    numbers = stem.numbers(triggers.oldest, until + 1, stem.high)
    for number in sorted(numbers, key=stem.latest, reverse=True):
        # Blocks come by their latest ts, so no later row is left.
        if best is not None and stem.latest(number) < best.ts:
            break
        for part, places in _matching(triggers, matcher, number, stem.high):
            places = places[part.ts[places] <= until]
            if len(places):
                ts = part.ts[places]
                row = _row(part, int(places[ts == ts.max()][-1]))
                best = row if best is None or (row.ts, row.id) > (best.ts, best.id) else best
    return best


def rows_after(triggers: Triggers, low: int, matcher: MatchSource) -> Iterator[TriggerRow]:
    """Yield the last matching row of each batch, of the rows with ids from `low` on, in the order
    of the log."""
    last: TriggerRow | None = None
    for part, places in _matching_after(triggers, low, matcher):
        positions = part.rows.column("_position").to_numpy()[places]
        # The last place of each run of equal positions. A batch may continue in the next part.
        ends = np.flatnonzero(np.diff(positions, append=-1))
        for place in places[ends].tolist():
            row = _row(part, place)
            if last is not None and last.position != row.position:
                yield last
            last = row
    if last is not None:
        yield last


def low_of_newest(triggers: Triggers, low: int, most: int, matcher: MatchSource) -> int:
    """Return the id from which on at most `most` batches have matching rows; `low` if that is so
    from there on."""
    stem = triggers.stem
    if stem.high - low <= most:
        return low
    for number in reversed(stem.numbers(triggers.oldest, FOR_EVER, stem.high)):
        if (number + 1) << BLOCK_BITS <= low:
            break
        for part, places in _matching(triggers, matcher, number, stem.high):
            places = places[part.ids[places] >= low]
            positions = part.rows.column("_position").to_numpy()[places]
            begins = np.flatnonzero(np.diff(positions, prepend=-1))
            if len(begins) > most:
                return int(part.ids[places[begins[len(begins) - most]]]) if most else stem.high
            most -= len(begins)
    return low


def has_lost(triggers: Triggers, low: int, matcher: MatchSource) -> bool:
    """Return True if rows with ids from `low` on refreshed the answer, or may have, that are no
    longer retained."""
    stem, oldest = triggers.stem, triggers.oldest
    if oldest is None or low >= stem.high:
        return False
    # Ids have no gaps but those of deleted rows.
    if stem.first_from(low, "_row_id") != low:
        return True
    stored = _matching_after(replace(triggers, oldest=None), low, matcher)
    return any((part.ts[places] < oldest).any() for part, places in stored)


def _matching_after(
    triggers: Triggers, low: int, matcher: MatchSource
) -> Iterator[tuple[Part, Int64s]]:
    """Yield what `_matching` does of the rows with ids from `low` on, in the order of ids."""
    stem = triggers.stem
    for number in stem.numbers(triggers.oldest, FOR_EVER, stem.high):
        if (number + 1) << BLOCK_BITS > low:
            for part, places in reversed([*_matching(triggers, matcher, number, stem.high)]):
                places = places[part.ids[places] >= low]
                if len(places):
                    yield part, places


def _matching(
    triggers: Triggers, matcher: MatchSource, number: int, high: int
) -> Iterator[tuple[Part, Int64s]]:
    """Yield the parts of a block, last first, with the places of the retained rows that match."""
    if matcher.lacks(number, high):
        return
    for part in reversed(triggers.stem.parts(number, high)):
        places = part.find(matcher.match(part, part.first, part.stop))
        # Without a condition all ids match, also those of deletes.
        places = places[are_rows(part.rows)[places]]
        if triggers.oldest is not None:
            places = places[part.ts[places] >= triggers.oldest]
        if len(places):
            yield part, places


def _row(part: Part, place: int) -> TriggerRow:
    stamp = part.rows.column("_stamp").view(pa.int64())[place].as_py()
    position = part.rows.column("_position")[place].as_py()
    return TriggerRow(int(part.ts[place]), int(part.ids[place]), position, stamp)
