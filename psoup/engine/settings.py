"""Everything about the engine that can be set, with its default."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from psoup.store.delta.checkpoints import LOG_RETENTION_MINUTES


class Rest(enum.Enum):
    """When new queries are matched over rows that none of their windows can reach.

    With NEVER such matches are not kept either: what no window can reach any more is dropped.
    """

    IDLE = "idle"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of an engine. Times are seconds, sizes bytes.

    The defaults keep a store with one busy stream at a handful of files per segment and let a
    request run for half the grace.
    """

    # How often an idle engine looks at the log.
    poll: float = 0.005
    # One step takes at most this much of the log.
    step_commits: int = 256
    step_bytes: int = 64 << 20
    # Less than this is not worth a second task.
    task_bytes: int = 4 << 20
    # How often a failed step is tried again before the engine gives up.
    retries: int = 3
    # A slice of back-fill: its first size in rows and what later ones aim for.
    slice_rows: int = 1 << 17
    slice_seconds: float = 0.3
    # When rows are matched that no window can reach, and how long a stream has had no rows by then.
    rest: Rest = Rest.NEVER
    idle: float = 1.0
    # Composites: more combinations than this for each row over ten steps suspend one. Candidates
    # that one task looks at, and what a worker keeps of the rows that it has read.
    most_combinations: int = 100
    most_candidates: int = 1 << 22
    worker_bytes: int = 256 << 20
    # Legs with more rows together are joined by Spark, so many rows of the first leg at a time.
    arrow_join_rows: int = 1 << 22
    spark_slice_rows: int = 1 << 21
    # Matches that no window can reach any more are dropped so many rows at a time.
    cut_rows: int = 1 << 20
    # A file leaves the disk no sooner than this after the epoch that stopped naming it.
    grace: float = 3600.0
    # How often retention, deletion and the other housekeeping are looked at without new data.
    housekeeping: float = 30.0
    # Consumed log files that are trimmed together.
    trim_commits: int = 64
    # Commits to a table between two checkpoints of its Delta log.
    checkpoint_commits: int = 64
    # Commits stay so long behind two checkpoints: a writer that stalls for less finds its number
    # taken.
    commit_grace: float = 60.0 * LOG_RETENTION_MINUTES
    # Files of like size that are merged into one, the factor between sizes, the input of one go.
    merge_files: int = 8
    merge_bytes: int = 64 << 20
    # Files of a newest-wins table before it is compacted.
    compact_files: int = 16
    # What is read for its checksums alone, in each round of housekeeping.
    scrub_bytes: int = 64 << 20
