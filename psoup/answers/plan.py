"""A plan: what one answer is made of, all of one moment.

A plan is made where nothing moves in between (`planning`), and holds all that is needed from there
on, so that any thread can compute the answer, of exactly one position.
"""

from __future__ import annotations

from dataclasses import dataclass

from datastem.schema import StreamSchema
from datastem.stem import Mark, StemView
from psoup.answers.epoch_view import EpochView
from psoup.answers.keyed_history import KeyedView
from psoup.store import START, Position
from querystem.expressions import Expression
from querystem.query import Query
from results.window import TimeWindow, Window

# Rows whose mark is at most this are known.
Limit = tuple[Mark, int]

_NO_NOW = "the stream has no rows yet, so it has no NOW"
_INSTANT_PAST = "the instant lies before the retention; what is left of it is shown"
_WINDOW_PAST = "the window began before the retention; what is left is shown"


@dataclass(frozen=True, slots=True)
class Triggers:
    """The rows of a stream that refresh an answer, as of the same moment as its plan.

    Rows with a ts below `oldest` are not retained. With `until`, the rows count that are known
    today and whose instant is no later; without it, the rows known within the limits of the plan.
    """

    where: Expression
    stream_id: int
    predicate_id: int
    stem: StemView
    oldest: int | None
    until: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What one answer is made of.

    `now` is None where the stream has no NOW yet, so that no row is in the answer. `window` may be
    another than the query's. Rows with a ts below `oldest` are not retained, or where the stream is
    `keyed` rows with an end below it; the retention counts from `current`, the stream's NOW
    whatever instant is asked about. Only rows within all `limits` are known. `triggers` are rows
    that have yet to say as of when the answer is; `refreshed_at` is the refresh point the plan is
    of. `losses` says which rows are missing because they are lost.
    """

    query: Query
    window: Window
    schema: StreamSchema
    stream_id: int
    predicate_id: int
    stem: StemView
    keyed: KeyedView | None
    epoch: EpochView
    position: Position
    now: int | None
    oldest: int | None
    limits: tuple[Limit, ...]
    notes: tuple[str, ...]
    current: int | None = None
    triggers: Triggers | None = None
    refreshed_at: int | None = None
    losses: tuple[str, ...] = ()

    def known(self) -> tuple[int, Position]:
        """The next row id, and the position, the answer is of."""
        if not self.limits:
            return self.stem.high, self.position
        found = [self.stem.high_at(mark, most) for mark, most in self.limits]
        high, position = min(found, key=lambda one: one[0])
        return high, START if position is None else Position.unpack(position)


def oldest_retained(schema: StreamSchema, now: int | None) -> int | None:
    """The least ts that is retained at `now`, in a keyed stream the least end; None: all rows."""
    return None if schema.retain is None or now is None else now - schema.retain + 1


def retention(
    window: Window, schema: StreamSchema, now: int | None, current: int | None
) -> tuple[int | None, tuple[str, ...]]:
    """The oldest rows an answer at `now` may show where the stream's NOW is `current`; and
    notes."""
    if now is None or current is None:
        return None, (_NO_NOW,)
    oldest = oldest_retained(schema, max(now, current))
    if oldest is None:
        return None, ()
    if schema.key:
        present = window.present(now) if isinstance(window, TimeWindow) else now
        return oldest, (_INSTANT_PAST,) if present < oldest - 1 else ()
    begin = window.at(now)[0] if isinstance(window, TimeWindow) else None
    return oldest, (_WINDOW_PAST,) if begin is not None and begin < oldest else ()
