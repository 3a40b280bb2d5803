"""The ledger: the engine's tables as the last epoch names them, and the commits made since.

Every commit is at exactly the version after the last one here. A conflict means that another engine
writes these tables, and a store may have only one: the one with the newest epoch. Nothing is
visible until `publish` has appended the epoch. After a failure a ledger is discarded, and
`recover.open_ledger` makes the next one from the last epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa

from psoup.engine.composites.legs import JoinedLegs
from psoup.engine.errors import SecondEngine
from psoup.engine.matching.coverage import Cohorts
from psoup.engine.ownership.fence import Fence
from psoup.engine.steps.histories import Histories
from psoup.store.audit import AUDIT_BOUNDS
from psoup.store.composite_marks import CompositeMark
from psoup.store.definitions import stem_table
from psoup.store.delta import Commit, DeltaFolder, Snapshot, TableDefinition
from psoup.store.delta.durable import together
from psoup.store.delta.files import DataFile, write_data_file
from psoup.store.epochs import Epoch, StreamMark
from psoup.store.errors import Conflict, Unconfirmed
from psoup.store.interest import Interests
from psoup.store.layout import ENGINE_TABLES, REACHED_BOUNDS
from psoup.store.state.quarantine import COMPOSITE, Quarantine, QuarantineEntry
from psoup.store.state.state import State
from psoup.store.store import Store

STEM = "stems/"
JOINS = "joins/"


def stem_name(stream_id: int) -> str:
    """Return the name of the table that is the stem of a stream or a composite."""
    return f"{STEM}{stream_id}"


def joins_name(composite_id: int) -> str:
    """Return the name of the table with a composite's joins."""
    return f"{JOINS}{composite_id}"


def stream_of(name: str) -> int:
    """Return the id of the stream or composite in the name of a stem or of joins."""
    return int(name.rpartition("/")[2])


class Ledger:
    """The tables as the engine has written them. `tables` has every table's files at the version
    last committed, stems included; `composites`, `unclosed`, `erased` and `wiped` are those of
    the next epoch."""

    def __init__(
        self,
        store: Store,
        epoch: Epoch,
        epochs_version: int,
        tables: dict[str, Snapshot],
        state: State,
        coverage: Cohorts,
    ) -> None:
        self.store = store
        self.epoch = epoch
        self.epochs_version = epochs_version
        self.tables = tables
        self.state = state
        self.coverage = coverage
        self.composites = dict(epoch.composites)
        self.unclosed = dict(epoch.unclosed)
        self.erased, self.wiped = epoch.erased, epoch.wiped
        self.histories = Histories(self.store)
        self.interests = Interests()
        self.interests.refresh(state)
        self._joined_legs: JoinedLegs | None = None

    @property
    def fence(self) -> Fence:
        """The right to delete, as long as the ledger's epoch is the newest."""
        return Fence(self.store, self.epochs_version)

    @property
    def joined_legs(self) -> JoinedLegs:
        """The legs of registered joins; the same object until they change."""
        registrations, _ = self.state.columns
        composed, quarantined = registrations.composed_legs, self.state.quarantine.predicates
        kept = self._joined_legs
        # The arrays are compared by identity: they are made again when a join comes or ends.
        if kept is None or kept.composed is not composed or kept.quarantined != quarantined:
            kept = self._joined_legs = JoinedLegs(composed, quarantined)
        return kept

    def folder(self, name: str) -> DeltaFolder:
        return self.store.table(name)

    def files(self, name: str) -> list[DataFile]:
        """Return the files of a table, without those whose rows are known to be lost."""
        # The path of a hole's file is relative to the store, as in the epoch.
        lost = {hole.file for hole in self.state.losses.holes}
        files = self.tables[name].files.values()
        return [file for file in files if f"{name}/{file.path}" not in lost] if lost else [*files]

    def floor(self, stream_id: int) -> int:
        """Return the least row id in the stem of a stream or composite, or its next row id if the
        stem has no files."""
        ids = [file.low["_row_id"] for file in self.files(stem_name(stream_id)) if file.low]
        return min(ids, default=self.high(stream_id))

    def high(self, stream_id: int) -> int:
        """Return the next row id of a stream, or the next combination id of a composite."""
        mark = self.composites.get(stream_id)
        return self.state.streams[stream_id].high if mark is None else mark.high

    def is_live(self, stream_id: int) -> bool:
        """Return True if an id is that of a stream that was not dropped, or of a composite that has
        not ended."""
        stream = self.state.streams.get(stream_id)
        return stream_id in self.state.composites if stream is None else not stream.dropped

    def create_stem(self, stream_id: int) -> None:
        self.store.create_stem(stream_id, self.state.streams[stream_id].schema)
        # A step that was undone may have created it: recovery then lists it, at a later version.
        self.tables.setdefault(stem_name(stream_id), Snapshot(0))

    def alter_stem(self, stream_id: int) -> None:
        """Give a stem the columns of its stream. No file is written again: readers show an added
        column as NULL where a file lacks it."""
        definition = stem_table(self.state.streams[stream_id].schema)
        self.commit(stem_name(stream_id), operation="ALTER", definition=definition)

    def create_composite(self, composite_id: int) -> None:
        """Create the tables and the mark of a composite, unless they exist."""
        legs = len(self.state.composites[composite_id].legs)
        self.store.create_composite(composite_id, legs)
        for name in (stem_name(composite_id), joins_name(composite_id)):
            self.tables.setdefault(name, Snapshot(0))
        self.composites.setdefault(composite_id, CompositeMark.without_box(legs))

    def mark_unclosed(self, stream_id: int) -> None:
        """Note that closures of a keyed stream are missing; they are derived again."""
        self.unclosed[stream_id] = self.epoch.number + 1

    def append(self, rows: Mapping[str, pa.Table]) -> None:
        """Write and commit the driver's rows, by table; tables without rows are skipped."""
        together(
            partial(self._append, name, table) for name, table in rows.items() if table.num_rows
        )

    def _append(self, name: str, table: pa.Table) -> None:
        bounds = {"reached": REACHED_BOUNDS, "audit": AUDIT_BOUNDS}.get(name, ())
        root, sync = self.folder(name).root, self.store.sync
        written = write_data_file(root, table, bounds=bounds, sync=sync)
        self.commit(name, [written], operation="APPEND")

    def commit_all(
        self,
        changes: Mapping[str, tuple[Iterable[DataFile], Iterable[DataFile]]],
        *,
        operation: str,
        data_change: bool = True,
    ) -> None:
        """Make one commit for each table, with the files it adds and removes. After a failure some
        commits may exist: no epoch names them."""
        together(
            partial(self.commit, name, *files, operation=operation, data_change=data_change)
            for name, files in changes.items()
        )

    def commit(
        self,
        name: str,
        added: Iterable[DataFile] = (),
        removed: Iterable[DataFile] = (),
        *,
        operation: str,
        data_change: bool = True,
        definition: TableDefinition | None = None,
    ) -> None:
        """Make one commit to a table, with the files it adds and removes, and with another
        `definition` if there is one. Raise SecondEngine if another process has committed to it."""
        added, removed = list(added), list(removed)
        snapshot = self.tables[name]
        version = snapshot.version + 1
        with only_engine():
            self.folder(name).commit(
                version,
                added,
                removed,
                operation=operation,
                data_change=data_change,
                sync=self.store.sync,
                definition=definition,
            )
        commit = Commit(version, tuple(added), tuple(file.path for file in removed))
        # Several threads may commit at once, but each to another table.
        self.tables[name] = snapshot.apply(commit)

    def publish(self, kind: str, log_version: int | None = None) -> None:
        """Append an epoch, which makes everything committed so far visible."""
        if log_version is not None:
            # The consumed part of the log must survive a power failure, as the epoch does.
            self.store.log.settle(log_version)
        state = self.state
        self.composites = self._composite_marks()
        self.unclosed = {id_: since for id_, since in self.unclosed.items() if self.is_live(id_)}
        epoch = replace(
            self.epoch,
            number=self.epoch.number + 1,
            kind=kind,
            log_version=self.epoch.log_version if log_version is None else log_version,
            position=state.position,
            clock=state.clock,
            made_at=time.time_ns() // 1000,
            next_predicate_id=state.next_predicate_id,
            versions={name: self.tables[name].version for name in ENGINE_TABLES},
            streams=self._marks(),
            outages=state.leases.outages,
            losses=state.losses,
            quarantine=self._quarantine(),
            jumps=state.jumps,
            composites=dict(self.composites),
            unclosed=dict(self.unclosed),
            erased=self.erased,
            wiped=self.wiped,
        )
        with only_engine():
            self.store.epochs.append(self.epochs_version + 1, epoch)
        # Other threads wait for positions of the epoch, so it is set only once it is published.
        self.epoch = epoch
        self.epochs_version += 1

    def _quarantine(self) -> Quarantine:
        """Return the entries in quarantine, without predicates and composites that have ended. An
        entry may be one that the log brings after this epoch."""
        state = self.state

        def stays(entry: QuarantineEntry) -> bool:
            if entry.kind == COMPOSITE:
                return entry.id in state.composites or entry.id not in self.epoch.composites
            return entry.id in state.predicates or entry.id >= state.next_predicate_id

        state.quarantine = state.quarantine.only(stays)
        return state.quarantine

    def _marks(self) -> dict[int, StreamMark]:
        """Return the mark of every stream; a dropped one is named as long as it has files."""
        marks = {}
        for stream_id, stream in self.state.streams.items():
            snapshot = self.tables.get(stem_name(stream_id))
            if snapshot is not None and (not stream.dropped or snapshot.files):
                marks[stream_id] = StreamMark.of(stream, snapshot.version)
        return marks

    def _composite_marks(self) -> dict[int, CompositeMark]:
        """Return the marks of the composites that have not ended, with their tables' versions."""
        return {
            composite_id: replace(
                mark,
                version=self.tables[stem_name(composite_id)].version,
                joins_version=self.tables[joins_name(composite_id)].version,
            )
            for composite_id, mark in self.composites.items()
            if composite_id in self.state.composites
        }


@contextmanager
def only_engine() -> Iterator[None]:
    """Raise SecondEngine for a conflict inside the block: only the engine writes its tables."""
    try:
        yield
    except (Conflict, Unconfirmed) as error:
        raise SecondEngine(
            f"{error}: another engine runs on this store. Stop it, or this one; "
            "a store has one engine."
        ) from error
