"""Heartbeats: events that took a stream's NOW further without a row of their own.

Rows record how far their stream had come before them. Heartbeats leave no row, so a search for the
event that first took a stream to an instant reads them too.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from datastem.instants import SINCE_EVER
from psoup.store.layout import REACHED
from psoup.store.log.events import Data, Entry


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """An event without rows that took a stream from `before` (None: it had no NOW) to `reached`;
    `position` is a packed one."""

    stream_id: int
    reached: int
    position: int
    stamp: int
    before: int | None


def heartbeats(entries: Iterable[Entry]) -> Iterator[Heartbeat]:
    """Yield the heartbeats among entries that take their stream further."""
    for entry in entries:
        event = entry.event
        if not isinstance(event, Data) or event.rows or event.reached is None:
            continue
        if event.before is None or event.reached > event.before:
            marks = event.reached, entry.position.packed, entry.stamp, event.before
            yield Heartbeat(event.stream_id, *marks)


def heartbeat_rows(beats: Sequence[Heartbeat]) -> pa.Table:
    """Return heartbeats as rows of the table `reached`."""
    columns = [[getattr(beat, field_.name) for beat in beats] for field_ in REACHED]
    return pa.Table.from_arrays(
        [pa.array(values, field_.type) for values, field_ in zip(columns, REACHED, strict=True)],
        schema=REACHED,
    )


@dataclass(slots=True)
class _Beats:
    """The heartbeats of one stream: no column falls. NULL is SINCE_EVER."""

    reached: array[int] = field(default_factory=lambda: array("q"))
    positions: array[int] = field(default_factory=lambda: array("q"))
    stamps: array[int] = field(default_factory=lambda: array("q"))
    before: array[int] = field(default_factory=lambda: array("q"))

    def after(self, count: int) -> _Beats:
        """Return the heartbeats without the first `count`."""
        columns = self.reached, self.positions, self.stamps, self.before
        return _Beats(*(column[count:] for column in columns))


@dataclass(frozen=True, slots=True)
class BeatsView:
    """The heartbeats of one stream that there were at one moment: later ones are not seen."""

    beats: _Beats
    count: int

    def first_to(self, instant: int) -> int | None:
        """Return the position of the first heartbeat that took the stream to an instant or past it;
        None if none did."""
        place = bisect_left(self.beats.reached, instant, 0, self.count)
        return self.beats.positions[place] if place < self.count else None

    def reached_at(self, stamp: int, oldest: int) -> int | None:
        """Return what the stream had reached before the first heartbeat with a later stamp that
        took it to `oldest` or past it, SINCE_EVER for nothing; None if there is no such one."""
        later = bisect_right(self.beats.stamps, stamp, 0, self.count)
        place = bisect_left(self.beats.reached, oldest, later, self.count)
        return self.beats.before[place] if place < self.count else None


class HeartbeatTail:
    """The heartbeats of the log after an epoch: 32 bytes each. Views of them stay as they are."""

    def __init__(self) -> None:
        self._streams: dict[int, _Beats] = {}

    def append(self, beat: Heartbeat) -> None:
        beats = self._streams.setdefault(beat.stream_id, _Beats())
        beats.reached.append(beat.reached)
        beats.positions.append(beat.position)
        beats.stamps.append(beat.stamp)
        beats.before.append(SINCE_EVER if beat.before is None else beat.before)

    def consume(self, position: int) -> None:
        """Forget the heartbeats up to a position, which the table has."""
        for stream_id, beats in list(self._streams.items()):
            count = bisect_right(beats.positions, position)
            # New arrays, because views go on reading the old ones.
            remaining = beats.after(count)
            if remaining.positions:
                self._streams[stream_id] = remaining
            else:
                del self._streams[stream_id]

    def view(self, stream_id: int) -> BeatsView:
        """Return the heartbeats of a stream as of now."""
        beats = self._streams.get(stream_id) or _Beats()
        # The arrays only grow, so the present length fixes what the view shows.
        return BeatsView(beats, len(beats.positions))
