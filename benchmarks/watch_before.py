"""`python -m benchmarks.watch_before …`: a server that wakes every Watch with every commit, as
servers did before they knew which watches a row concerns."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from psoup.server.main import main
from psoup.server.watches import Watches
from psoup.store import Entry
from psoup.store.log.decoding import DecodedRows


def _hear(watches: Watches, entries: Sequence[Entry], rows: DecodedRows) -> None:
    watches.wake_all()


if __name__ == "__main__":
    Watches.hear = _hear  # type: ignore[assignment, method-assign]
    sys.exit(main())
