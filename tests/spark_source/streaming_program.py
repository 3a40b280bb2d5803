"""A streaming query in a process of its own, to be killed: rows of a stream into files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from psoup.spark import PsoupDataSource


def begin(session: Any, target: str, tenant: str, folder: Path, **trigger: Any) -> Any:
    """Return the query, which goes on at its checkpoint."""
    session.dataSource.register(PsoupDataSource)
    return (
        session.readStream.format("psoup")
        .option("target", target)
        .option("tenant", tenant)
        .option("stream", "s")
        .option("maxRowsPerTrigger", 12)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "rows"))
        .trigger(**trigger)
        .start()
    )


if __name__ == "__main__":
    from psoup.engine.spark.session import open_session

    folder = Path(sys.argv[3])
    begin(
        open_session(folder), sys.argv[1], sys.argv[2], folder, processingTime="0 seconds"
    ).awaitTermination()
