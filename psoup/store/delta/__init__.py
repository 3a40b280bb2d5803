"""A Delta table whose commits are compare-and-set, and stay when the power fails.

`DeltaFolder` is the table. `commits` reads and writes its commit files; `checkpoints` replace older
commits. `files` writes Parquet files and `reading` reads them, verified by `checksums`. `durable`
is the only code that writes to the disk.
"""

from psoup.store.delta.commits import Commit, Snapshot
from psoup.store.delta.files import DataFile
from psoup.store.delta.folder import DeltaFolder, TableDefinition

__all__ = ["Commit", "DataFile", "DeltaFolder", "Snapshot", "TableDefinition"]
