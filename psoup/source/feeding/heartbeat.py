"""Heartbeats of an idle source: how far NOW of its stream has come while nothing is to be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class ReachedTime:
    """The greatest event time that a partition has published, in microseconds, and the time of the
    clock at which the store had it, in seconds.
    """

    instant: int
    at: float

    def grown(self, now: float) -> int:
        """Return the instant that goes on with the clock."""
        return self.instant + round(max(0.0, now - self.at) * 1e6)


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The state of a partition. `reached` is None if it is unknown, or if there are no rows yet."""

    is_idle: bool
    has_rows: bool
    reached: ReachedTime | None


def heartbeat_instant(
    partitions: Iterable[PartitionProgress], now: float, quiet_seconds: float
) -> int | None:
    """Return the instant that the partitions of a source have reached, in microseconds.

    It is the least of theirs, each grown by the time since its last row. It is None while one of
    them has records to read, or has published within `quiet_seconds`, or is not known.
    """
    instants = []
    for partition in partitions:
        reached = partition.reached
        if not partition.is_idle or (reached is None and partition.has_rows):
            return None
        if reached is not None:
            if now - reached.at < quiet_seconds:
                return None
            instants.append(reached.grown(now))
    return min(instants, default=None)


def greatest_instant(table: pa.Table, column: str | None) -> int | None:
    """Return the greatest event time of a batch in microseconds; None if there is none."""
    if column is None or not table.num_rows:
        return None
    instant = pc.max(table.column(column)).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
    return None if instant is None else int(instant)
