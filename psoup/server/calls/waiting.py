"""What calls wait for: positions that clients show, and the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from psoup.answers import Plan
from psoup.errors import NotReached, ServerError
from psoup.server.call import Call
from psoup.server.core import Core
from psoup.store import ForeignPosition, Position
from psoup.store.log.position import MarkedPosition

# How long before the client gives up a call ends, so that the reason arrives in time.
_MIN_MARGIN_SECONDS, _MAX_MARGIN_SECONDS = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant of the monotonic clock."""

    at: float

    @classmethod
    def of(cls, call: Call, limit: float) -> Deadline:
        """Return when a call stops to wait: after `limit` seconds, or shortly before its client
        does."""
        seconds = call.seconds_left
        if seconds is not None:
            limit = min(
                limit, seconds - min(_MAX_MARGIN_SECONDS, max(_MIN_MARGIN_SECONDS, seconds / 10))
            )
        return cls(time.monotonic() + max(limit, 0.0))

    @classmethod
    def within(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    @property
    def remaining(self) -> float:
        return max(0.0, self.at - time.monotonic())


async def reach_own(core: Core, call: Call, content: bytes, deadline: Deadline) -> None:
    """Return when the server is as far as a position that a client shows. Raise ForeignPosition if
    it is not one of this store's history, NotReached if that can't be known in time."""
    least = core.positions.decode(content)
    await reach(core, call, [least], deadline)
    if is_foreign(core, least):
        raise ForeignPosition(
            "the store never had that position: it was restored from a back-up since; leave it out"
        )


async def reach(
    core: Core, call: Call, positions: Sequence[MarkedPosition], deadline: Deadline
) -> None:
    """Return when the server is as far as these positions, or knows that the log is not: what then
    lies beyond its end is foreign. Raise NotReached if that can't be known in time."""
    furthest = max((marked.position for marked in positions), default=None)
    if furthest is None or furthest.version <= core.follower.version:
        return
    await core.follower.catch_up()
    if furthest.version <= core.follower.version:
        return
    # The proof waits for a commit, during which this call does no work.
    call.end_turn()
    try:
        await asyncio.wait_for(core.log_end.prove(), deadline.remaining)
    except (TimeoutError, ServerError):
        raise NotReached(
            "this server has not seen that position yet",
            expected=_text(furthest),
            got=_text(core.follower.state.position),
            hint="ask again, or with a longer deadline",
        ) from None


def is_foreign(core: Core, marked: MarkedPosition) -> bool:
    """Return whether a position that was reached for is not in the log: beyond its end, or of a
    history that a restore has undone."""
    version, follower = marked.position.version, core.follower
    return version > follower.version or follower.state.writers.at(version) != marked.mark


def _text(position: Position) -> str:
    return f"position {position.version}.{position.ordinal}"


# ---- the engine


async def wait_for_engine(core: Core, call: Call, plan: Plan, deadline: Deadline) -> None:
    """Return when the engine has made an epoch after that of a plan. Raise NotReached."""
    follower = core.follower
    while follower.epoch.number == plan.epoch.number:
        call.end_turn()
        if not deadline.remaining or not await follower.moved(deadline.remaining):
            rows = 0 if plan.bound else follower.behind_in(plan.streams)[0]
            behind = f"; it is {rows:,} rows behind" if rows else ""
            raise NotReached(
                f"the engine has not matched this query over all its rows{behind}",
                hint="ask without wait_for_engine, or with a longer deadline",
            )
