"""A look at every file a store names."""

from __future__ import annotations

from collections.abc import Iterator

from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.errors import CorruptStore
from psoup.store.layout import ENGINE_TABLES
from psoup.store.reading import reader, table_name
from psoup.store.store import Store


def damage(store: Store) -> Iterator[str]:
    """The files that can't be read, each with the reason. Raises CorruptStore where the store
    can't even be opened."""
    _, epoch = store.epochs.latest()
    tables = [(store.log.folder, store.log.folder.snapshot())]
    tables += [(store.table(name), store.snapshot(epoch, name)) for name in ENGINE_TABLES]
    tables += [(store.stem(one), store.stem_snapshot(epoch, one)) for one in epoch.streams]
    for folder, snapshot in tables:
        yield from _damaged(folder, snapshot)


def _damaged(folder: DeltaFolder, snapshot: Snapshot) -> Iterator[str]:
    for file in snapshot.files.values():
        try:
            reader(folder.root, file).check()
        except FileNotFoundError:
            yield f"{table_name(folder.root)}/{file.path} is gone"
        except CorruptStore as error:
            yield str(error)
