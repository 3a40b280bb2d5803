"""The header of an answer, as bytes: what depends on the query alone is written once.

Messages of protobuf that follow each other are one message, so the columns are kept as bytes and
put behind the fields that differ from answer to answer.
"""

from __future__ import annotations

from functools import lru_cache

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from datastem.instants import SECOND
from datastem.schema import Column
from psoup.answers import Answer, ChosenRows, Plan
from psoup.server.core import Core
from psoup.server.wire.values import columns_message
from psoup.v1 import psoup_pb2 as pb
from results.region import Region, time_region
from results.window import TimeWindow


class AnswerHeader:
    """The header of an answer, which waits for the time that the answer took."""

    def __init__(self, core: Core, plan: Plan, answer: Answer | ChosenRows) -> None:
        self._message = _message(core, plan, answer)
        self._columns = _columns_bytes(plan.query.columns)

    def serialize(self, elapsed: int) -> bytes:
        """Return the header of an answer that took so many microseconds."""
        _set(self._message.elapsed, elapsed)
        return self._message.SerializeToString() + self._columns


@lru_cache(maxsize=4096)
def _columns_bytes(columns: tuple[Column, ...]) -> bytes:
    return pb.AnswerHeader(columns=columns_message(columns)).SerializeToString()


def _message(core: Core, plan: Plan, answer: Answer | ChosenRows) -> pb.AnswerHeader:
    header = pb.AnswerHeader(
        position=core.positions.encode(answer.position),
        row_count=answer.row_count,
        epoch=plan.epoch.number,
        notes=(*plan.notes, *plan.losses),
    )
    if not plan.bound:
        rows, age = core.follower.behind_in(plan.streams)
        header.computed_rows, header.joined_pairs = answer.computed_rows, answer.joined_pairs
        header.behind_rows = rows
        _set(header.behind, age)
    if plan.now is not None:
        _set(header.now, plan.now)
    if plan.refreshed_at is not None:
        _set(header.refreshed_at, plan.refreshed_at)
    if plan.full_at is not None:
        _set(header.full_at, plan.full_at)
    if plan.reached.least is not None:
        _set(header.complete_until, plan.reached.least)
    if plan.reached.greatest is not None:
        _set(header.latest, plan.reached.greatest)
    if region := _common_region(plan):
        if region.begin is not None:
            _set(header.window_begin, region.begin)
        # Regions are half-open; the header has the last instant that is inside.
        _set(header.window_end, region.end - 1)
    return header


def _set(field: Timestamp | Duration, micros: int) -> None:
    """Set a field of a message, which takes a third of the time of a copy. It is then present, also
    if it is zero."""
    field.seconds, field.nanos = micros // SECOND, micros % SECOND * 1000


def _common_region(plan: Plan) -> Region | None:
    """Return the region of the window that all legs have. None if they have several, or their
    window is not one of time."""
    if not plan.legs:
        return None
    first, *following = plan.legs
    window = first.window, first.now
    if any((other.window, other.now) != window for other in following):
        return None
    if first.now is None or not isinstance(first.window, TimeWindow):
        return None
    oldest = max((leg.oldest for leg in plan.legs if leg.oldest is not None), default=None)
    return time_region(first.window, first.now, oldest, 0)
