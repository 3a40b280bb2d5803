"""A store: the folder, its identity and its tables."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from datastem.schema import StreamSchema
from psoup.store.definitions import combinations_table, joins_table, stem_table, system_table
from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.epochs import Epoch, Epochs
from psoup.store.errors import CorruptStore, NotAStore
from psoup.store.format import new_identity, read_identity
from psoup.store.layout import TABLES
from psoup.store.log.log import Log
from psoup.store.log.position import IDENTITY_BYTES
from psoup.store.presence import refuse_unfinished
from psoup.store.state.state import State
from psoup.store.tables import REPEATED, load_state, read_newest


class Store:
    """An open store. With `sync` False a power cut may lose commits; a killed process loses
    nothing."""

    def __init__(self, root: Path, *, sync: bool = True) -> None:
        self.root = root
        self.sync = sync
        identity = read_identity(root)
        self.log = Log(self.table("log"), sync=sync)
        self.epochs = Epochs(self.table("epochs"), sync=sync)
        self.id: str = identity["store"]
        self._incarnation: str = identity["incarnation"]

    @cached_property
    def identity(self) -> bytes:
        """Eight bytes that name the store and its incarnation: the one that the newest epoch names,
        or that the store began as."""
        _, epoch = self.epochs.latest()
        names = f"{self.id}/{epoch.incarnation or self._incarnation}"
        return hashlib.blake2b(names.encode(), digest_size=IDENTITY_BYTES).digest()

    @classmethod
    def open(
        cls, root: Path | str, *, create: bool = False, sync: bool = True, repairing: bool = False
    ) -> Store:
        """Open a store, or with `create` make one in a missing or empty folder.

        Several processes may do this at once; they get the same store. Raise NotAStore for a folder
        that holds anything else, UnsupportedFormat for a store of another format, and Repairing for
        one with an unfinished repair, unless `repairing` is True.
        """
        root = Path(root).absolute()
        if not repairing:
            refuse_unfinished(root)
        if not DeltaFolder(root / "log").exists:
            if not create:
                raise NotAStore(f"{root} is not a store; `psoup serve` makes one there")
            _check_new(root)
            if root.exists() and any(child.name not in TABLES for child in root.iterdir()):
                raise NotAStore(f"{root} is not empty and not a store; choose another folder")
        else:
            read_identity(root)
        # Also in an existing store: the process that made it may have been killed before its last
        # table.
        for name in TABLES:
            DeltaFolder(root / name).create(
                system_table(name),
                description=new_identity() if name == "log" else "",
                sync=sync,
            )
        return cls(root, sync=sync)

    def table(self, name: str) -> DeltaFolder:
        return DeltaFolder(self.root / name)

    def stem(self, stream_id: int) -> DeltaFolder:
        """Return the table of a stream's rows, or of a composite's combinations. The engine creates
        it with the stream's first epoch."""
        return self.table(f"stems/{stream_id}")

    def joins(self, composite_id: int) -> DeltaFolder:
        """Return the table of the rows of a composite's legs by join key, which only the engine
        reads."""
        return self.table(f"joins/{composite_id}")

    def create_stem(self, stream_id: int, schema: StreamSchema) -> DeltaFolder:
        stem = self.stem(stream_id)
        stem.create(stem_table(schema), sync=self.sync)
        return stem

    def create_composite(self, composite_id: int, legs: int) -> None:
        """Create the two tables of a composite with `legs` legs."""
        self.stem(composite_id).create(combinations_table(composite_id, legs), sync=self.sync)
        self.joins(composite_id).create(joins_table(composite_id), sync=self.sync)

    def snapshot(self, epoch: Epoch, name: str) -> Snapshot:
        """Return the files of a table as an epoch names them."""
        return self.table(name).snapshot(epoch.versions.get(name, 0))

    def stem_snapshot(self, epoch: Epoch, stream_id: int) -> Snapshot:
        """Return the files of the stem of a stream, or of a composite, as an epoch names them."""
        mark = epoch.stem(stream_id)
        return Snapshot(0) if mark is None else self.stem(stream_id).snapshot(mark.version)

    def joins_snapshot(self, epoch: Epoch, composite_id: int) -> Snapshot:
        """Return the files of a composite's joins as an epoch names them."""
        return self.joins(composite_id).snapshot(epoch.composites[composite_id].joins_version)

    def state(self, epoch: Epoch) -> State:
        """Fold everything that the epoch has consumed, from the tables alone."""

        def read(name: str) -> pa.Table:
            snapshot, repeated = self.snapshot(epoch, name), REPEATED.get(name, ())
            return read_newest(self.table(name), snapshot, TABLES[name], repeated)

        state = load_state(epoch, read)
        # The rows are copied into columns; without this call Arrow would keep its memory.
        pa.default_memory_pool().release_unused()
        return state

    def last_state(self, epoch: Epoch) -> State:
        """Return the state at the end of the log, from an epoch on. Raise StoreError."""
        state, begin = self.state(epoch), epoch.log_version + 1
        for version in range(begin, self.log.latest_version(epoch.log_version) + 1):
            for entry in self.log.read(version, payloads=False):
                state.apply(entry)
        return state


def _check_new(root: Path) -> None:
    """Raise CorruptStore if the log was lost: it is the first table that is created, so no other
    table can exist without it."""
    existing = [name for name in TABLES if name != "log" and DeltaFolder(root / name).exists]
    if existing and not DeltaFolder(root / "log").exists:
        raise CorruptStore(
            f"{root} has the table {existing[0]}, but the table log is gone; restore a back-up"
        )
