"""What becomes of bad rows: the source stops, they are put aside, or they are left out."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa

from psoup.source.errors import BadRowFound, BadSettings
from psoup.source.feeding.piece import BadRow

# The stream of rows that were put aside.
ASIDE_COLUMNS = ("source", "place", "reason", "message", "raw", "metadata")
MOST_BAD_ROWS = 1000
WINDOW_SECONDS = 60.0
# The store takes no larger TEXT by default.
MAX_RAW_BYTES = 1 << 20


@dataclass
class BadRows:
    """The policy: `stop`, `aside` into the stream `aside`, or `skip`.

    More than `most` of them in a minute stop the source all the same, unless they are skipped.
    `most_share` is the least share of bad records among all that does so.
    """

    policy: str = "stop"
    aside: str = ""
    most: int = MOST_BAD_ROWS
    most_share: float = 0.0
    _recent: deque[tuple[float, int, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        if self.policy not in ("stop", "aside", "skip"):
            raise BadSettings(f'bad_rows = "{self.policy}": write "stop" or "aside"')
        if (self.policy == "aside") != bool(self.aside):
            raise BadSettings('bad_rows = "aside" needs aside = "STREAM", and the other way round')

    def count(self, bad: int, records: int) -> None:
        """Count records that were read. Raises BadRowFound if too many of them are bad."""
        now = time.monotonic()
        self._recent.append((now, bad, records))
        while self._recent[0][0] < now - WINDOW_SECONDS:
            self._recent.popleft()
        total_bad = sum(count for _, count, _ in self._recent)
        total = sum(count for _, _, count in self._recent)
        if self.policy == "aside" and total_bad > max(self.most, self.most_share * total):
            raise BadRowFound(
                f"{total_bad:,} of {total:,} rows within a minute were bad, more than bad_rows_most"
            )

    def table(self, source: str, rows: list[BadRow]) -> pa.Table:
        """Return bad rows as rows of the aside stream."""
        return pa.table(
            {
                "source": [source] * len(rows),
                "place": [row.place for row in rows],
                "reason": [row.reason for row in rows],
                "message": [row.message for row in rows],
                "raw": [_cut(row.raw) for row in rows],
                # A part of it would be of no use.
                "metadata": [row.metadata if _fits(row.metadata) else None for row in rows],
            },
            schema=pa.schema([(name, pa.string()) for name in ASIDE_COLUMNS]),
        )


def _fits(metadata: str) -> bool:
    return 0 < len(metadata.encode()) <= MAX_RAW_BYTES


def _cut(text: str) -> str:
    encoded = text.encode("utf-8", "backslashreplace")
    return encoded[:MAX_RAW_BYTES].decode("utf-8", "ignore")
