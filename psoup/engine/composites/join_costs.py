"""The choice between tasks with Arrow and Spark's join for old rows, by measurements.

Tasks with Arrow have next to no fixed cost, but each slice reads the stored rows of the other legs,
which get slower to read when they no longer fit the workers' caches. Spark's join has a fixed cost
and then a cost per row that does not grow. So neither is best at all sizes, and the size at which
they meet depends on the machines.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Spark's join before one was measured: planning, scheduling and compiling, and the time of a task
# per row of all legs. docs/explanation/decisions/engine.md has the measurement.
_FIRST_FIXED_SECONDS = 5.0
_FIRST_ROW_SECONDS = 2.5e-6
# One measurement changes an estimate by at most this factor: the machines may be busy with others.
_MAX_CORRECTION = 2.0


@dataclass(slots=True)
class JoinCosts:
    """Estimates of both ways, corrected by what was measured. `parallelism` is the number of tasks
    that Spark runs at once."""

    parallelism: int
    # By composite: seconds per row of leg 0 in slices with Arrow; None for the first slice, in
    # which workers start and caches fill.
    _slices: dict[int, float | None] = field(default_factory=dict)
    _correction: float = 1.0

    def prefer_spark(
        self, composite_id: int, rows: int, other_rows: int, slice_rows: int, factor: float
    ) -> bool:
        """Return True if slices with Arrow are expected to take at least `factor` times as long as
        Spark's join, for `rows` rows of leg 0 and `other_rows` of the other legs. Spark reads the
        other legs once for each `slice_rows` rows. Without a measured slice Arrow takes no time."""
        slices = -(-rows // slice_rows)
        spark = slices * self.spark_seconds(min(rows, slice_rows) + other_rows)
        arrow = rows * (self._slices.get(composite_id) or 0.0)
        return arrow >= factor * spark

    def slice_rows(self, other_rows: int, least: int, max_seconds: float) -> int:
        """Return how many rows of leg 0 one join of Spark takes: as many as the other legs have,
        which it reads each time, unless that is expected to take longer than `max_seconds`."""
        rows = max(least, other_rows)
        while rows > least and self.spark_seconds(rows + other_rows) > max_seconds:
            rows //= 2
        return max(rows, least)

    def spark_seconds(self, rows: int) -> float:
        """Return the expected seconds of Spark's join of `rows` rows of all legs."""
        row_seconds = _FIRST_ROW_SECONDS / self.parallelism
        return self._correction * (_FIRST_FIXED_SECONDS + row_seconds * rows)

    def note_slice(self, composite_id: int, rows: int, seconds: float) -> None:
        """Note how long a slice with Arrow took."""
        if composite_id not in self._slices:
            self._slices[composite_id] = None
        elif rows:
            last = self._slices[composite_id] or seconds / rows
            self._slices[composite_id] = (last + seconds / rows) / 2

    def note_spark(self, rows: int, seconds: float) -> None:
        """Note how long Spark's join of `rows` rows took."""
        ratio = seconds / self.spark_seconds(rows)
        self._correction *= min(_MAX_CORRECTION, max(1 / _MAX_CORRECTION, ratio))
