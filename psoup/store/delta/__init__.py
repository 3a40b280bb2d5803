"""A Delta table whose commits are compare-and-set, and stay when the power fails.

`DeltaFolder` is the table. `commits` are its commit files and what they say, `checkpoints` stand
for the older ones, `files` are its Parquet files, written and named, and `reading` reads them and
holds them against their `checksums`. `durable` is the only code that writes to the disk.
"""

from psoup.store.delta.commits import Commit, Snapshot
from psoup.store.delta.files import DataFile
from psoup.store.delta.folder import DeltaFolder, TableDefinition

__all__ = ["Commit", "DataFile", "DeltaFolder", "Snapshot", "TableDefinition"]
