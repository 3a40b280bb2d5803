"""A Delta table whose commits are compare-and-set, and stay when the power fails.

`DeltaFolder` is the table. `commits` holds its commit files, `checkpoints` what stands for the
older of them, `snapshot` the files a table has at one version.
"""

from psoup.store.datafile import DataFile
from psoup.store.delta.folder import DeltaFolder
from psoup.store.delta.snapshot import Commit, Snapshot

__all__ = ["Commit", "DataFile", "DeltaFolder", "Snapshot"]
