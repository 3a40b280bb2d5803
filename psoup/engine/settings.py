"""The settings of the engine, with their defaults."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from psoup.store.backup.pins import PIN_TIMEOUT_SECONDS
from psoup.store.delta.checkpoints import LOG_RETENTION_MINUTES


class Rest(enum.Enum):
    """When new queries are matched with rows that none of their windows can reach.

    With NEVER, existing matches that no window can reach any more are dropped, too.
    """

    IDLE = "idle"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of an engine. Times are seconds, sizes bytes.

    The defaults keep a store with one busy stream at a handful of files per segment and let a
    request run for half the grace.
    """

    # How often an idle engine checks the log.
    poll: float = 0.005
    # One step takes at most this much of the log; None: as much as suits the cluster (`grid`). It
    # takes less if the processor time of earlier steps says that it would take longer than this.
    step_commits: int | None = None
    step_bytes: int | None = None
    step_seconds: float = 10.0
    # A smaller part of the log is not worth a second task.
    task_bytes: int = 4 << 20
    # How often a failed step is tried again before the engine gives up.
    retries: int = 3
    # A slice of back-fill: its first size in rows, and how long new rows may wait for one.
    slice_rows: int = 1 << 17
    slice_seconds: float = 1.0
    # When rows are matched that no window can reach, and after how long without rows a stream is
    # idle.
    rest: Rest = Rest.NEVER
    idle: float = 1.0
    # Composites: more combinations than this per row over ten steps suspend one. Candidates that
    # one task examines, and the cache of rows in a worker.
    max_combinations: int = 100
    # The same for joins by an inequality, per row that an admitted predicate matches: at invoke,
    # more are made about as fast as stored ones are fetched.
    max_range_combinations: int = 8
    max_candidates: int = 1 << 22
    worker_bytes: int = 256 << 20
    # Spark joins the old rows of a composite, in slices of at least so many rows of its first leg,
    # if tasks with Arrow would take this many times as long: with 0 always, with infinity never.
    spark_join_factor: float = 1.0
    spark_slice_rows: int = 1 << 21
    # Matches that no window can reach any more are dropped in slices of this many rows.
    cut_rows: int = 1 << 20
    # A file is deleted no sooner than this after the last epoch that names it.
    grace: float = 3600.0
    # How often retention, deletion and other housekeeping run without new data.
    housekeeping: float = 30.0
    # How often an empty job keeps Python workers alive, which Spark ends after 60 idle seconds; and
    # for how long after the last new row or query.
    keep_alive: float = 40.0
    in_use: float = 600.0
    # Consumed log files that are trimmed together.
    trim_commits: int = 64
    # Commits to a table between two checkpoints of its Delta log.
    checkpoint_commits: int = 64
    # Commits before the last two checkpoints stay this long: a writer that stalls for less finds
    # its version taken.
    commit_grace: float = 60.0 * LOG_RETENTION_MINUTES
    # The pin of a back-up whose counter stands still for this long is ignored.
    pin_timeout: float = PIN_TIMEOUT_SECONDS
    # Files of like size that are merged into one, which is also the factor between sizes; and the
    # input of one merge.
    merge_files: int = 8
    merge_bytes: int = 64 << 20
    # Files of a newest-wins table before it is compacted.
    compact_files: int = 16
    # Files that are read only to check them, in each round of housekeeping.
    scrub_bytes: int = 64 << 20
