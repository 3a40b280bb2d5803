"""The fence of an engine: it deletes only while its epoch is the newest.

Commits are compare-and-set, so those of an engine that another one has replaced conflict. Deletion
has no such test. An engine that was stopped or cut off for a while, and comes back, knows only the
files of its own last epoch: to it, the files that the other engine has written since are files that
no commit names. So each deletion in the store's folder goes through a fence, which looks first for
a newer epoch. No other module of the engine deletes, except drafts that it wrote itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from psoup.engine.errors import SecondEngine
from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.delta.durable import remove
from psoup.store.delta.folder import TableDefinition
from psoup.store.store import Store


class Fence:
    """The right to delete of an engine whose last epoch is in `epochs_version` of its table."""

    def __init__(self, store: Store, epochs_version: int) -> None:
        self._store = store
        self._epochs_version = epochs_version

    @property
    def is_open(self) -> bool:
        """True if no epoch came after this engine's. It costs a few looks at the disk."""
        return self._store.epochs.is_newest(self._epochs_version)

    def check(self) -> None:
        """Raise SecondEngine if another engine has published an epoch."""
        if not self.is_open:
            raise SecondEngine(
                f"another engine has taken over {self._store.root}: it published an epoch after "
                f"version {self._epochs_version}, the last of this engine"
            )

    def delete(self, paths: Iterable[Path]) -> None:
        """Delete files, in this order, with a look before each: a process may be stopped between
        any two of them."""
        for path in paths:
            self.check()
            remove([path])

    def drop_commits(self, folder: DeltaFolder, below: int) -> None:
        """Delete the commits of a table below a version and below its floor."""
        self.delete(folder.obsolete_commits(below))

    def checkpoint(self, folder: DeltaFolder, version: int) -> None:
        """Write a checkpoint of a table, which replaces the pointer to a checkpoint."""
        self.check()
        folder.checkpoint(version)

    def remove_table(self, folder: DeltaFolder) -> None:
        """Remove a table, which no epoch may name, with all its files."""
        self.check()
        folder.remove()

    def restart(self, folder: DeltaFolder, definition: TableDefinition, after: int) -> Snapshot:
        """Empty a table whose log can't be read; see `DeltaFolder.restart`."""
        self.check()
        return folder.restart(definition, after, sync=self._store.sync)

    def mend(self, folder: DeltaFolder) -> None:
        """Remove checkpoints of a table that can't be read."""
        self.check()
        folder.mend()
