"""A replica: the store in memory, as answers are computed from it.

It consists of a state, the stems and an epoch's view. It changes by whole commits of the log and
whole epochs, so that these three always fit together. A server that must open its store again
builds another replica beside the one it answers from, and switches when that has caught up.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from datastem.blocks import SplitRows
from datastem.codec import empty_rows, stem_schema
from datastem.memory import Memory
from datastem.schema import StreamSchema
from datastem.segments import SegmentIndex
from datastem.stem import DataStem
from psoup.answers.replicas.epoch_files import (
    EMPTY,
    EpochView,
    StemReader,
    open_epoch_view,
)
from psoup.answers.replicas.keyed_history import KeyedStream
from psoup.answers.replicas.stem_files import StemFiles
from psoup.store import (
    CorruptStore,
    Data,
    Entry,
    Hole,
    LogTrimmed,
    Losses,
    RowsErased,
    Snapshot,
    State,
    Store,
    StreamAltered,
    StreamCreated,
    StreamEnded,
)
from psoup.store.audit import AuditRecord, records_of
from psoup.store.heartbeats import HeartbeatTail, heartbeats
from psoup.store.layout import combinations_schema
from psoup.store.log.decoding import DecodedRows, decode_rows

_MAX_MARKS = 4096

log = logging.getLogger("psoup.answers")

# By stream: in which files its rows are.
Indexes: TypeAlias = dict[int, SegmentIndex]


def read_commit(store: Store, version: int, state: State) -> tuple[list[Entry], DecodedRows, int]:
    """Read a commit as `Replica.apply` takes it. `state` must be the one before the commit.

    Raises LogTrimmed if the version is behind two checkpoints: a late writer may have put a commit
    in the place of the deleted one that counted.
    """
    if store.log.folder.is_below_floor(version):
        raise LogTrimmed(f"version {version} of the log is behind a checkpoint")
    entries = store.log.read(version)
    file = store.log.file(version) if entries else None
    if file is None:
        return entries, {}, 0
    return entries, decode_rows(entries, state, file.path), file.size


def read_epoch(store: Store) -> tuple[State, EpochView]:
    """Return the newest epoch's state and view, as read from the tables."""
    version, epoch = store.epochs.latest()
    return store.state(epoch), open_epoch_view(store, version, epoch)


class Replica:
    """A store up to the commit `version` of its log, the last one that `state` and `stems` hold.

    `stems` has those of streams and of composites; `combinations` has the ids of the latter.
    `epoch` names the engine's files; `backlog` has the commits after it, `heartbeats` and `audit`
    the heartbeats and audit records in those. One thread may change a replica; any may read the
    views of its stems.
    """

    def __init__(self, store: Store, memory: Memory, state: State, version: int) -> None:
        """Begin at an epoch's state and log version. The caller must `show` the epoch's view, which
        brings the rows."""
        self.state = state
        self.version = version
        self.epoch = EMPTY
        self.stems: dict[int, DataStem] = {}
        self.combinations: set[int] = set()
        self.damaged = DamagedComposites()
        self.keyed: dict[int, KeyedStream] = {}
        self.backlog = Backlog()
        self.heartbeats = HeartbeatTail()
        self.audit: list[AuditRecord] = []
        # Lost rows of the log after the view's epoch.
        self._holes: list[Hole] = []
        self._store = store
        self._memory = memory
        self._files: dict[int, StemFiles] = {}
        self._readers: dict[int, StemReader] = {}
        for stream in state.streams.values():
            if not stream.dropped:
                self._open_stem(stream.id, stream.schema)

    @classmethod
    def open(cls, store: Store, memory: Memory) -> Replica:
        """Return the newest epoch and the log after it, to its end. Raises StoreError."""
        state, epoch = read_epoch(store)
        replica = cls(store, memory, state, epoch.epoch.log_version)
        replica.show(epoch, replica.reader(epoch)())
        while replica.version < store.log.latest_version(replica.version):
            version = replica.version + 1
            replica.apply(version, *read_commit(store, version, replica.state))
        return replica

    def apply(self, version: int, entries: Sequence[Entry], rows: DecodedRows, nbytes: int) -> None:
        """Apply the commit after `self.version`, whose file has `nbytes` bytes.

        Raises CorruptStore, with nothing changed, if its row ids don't continue the present ones.
        """
        self._check(version, entries)
        for entry in entries:
            self.audit += records_of(self.state, entry)
            self.state.apply(entry)
            self._apply_rows(entry, rows)
        for beat in heartbeats(entries):
            self.heartbeats.append(beat)
        if entries:
            self.backlog.append(version, entries[0].stamp, nbytes, _row_bytes(entries))
        self.version = version

    def is_behind(self, replica: Replica) -> bool:
        """Return True if another replica has a commit or an epoch that this one lacks."""
        older = self.epoch.number < replica.epoch.number
        return older or self.version < replica.version

    def reader(self, view: EpochView) -> Callable[[], Indexes]:
        """Return a function for a thread, which reads in what files the rows are of the stems that
        a view changes."""
        # This changes the replica, so it is done here, not by the returned function. That gets a
        # list of what it reads, since the dicts may change while it runs.
        self._open_combinations(view)
        changed = [
            (stream_id, self.stems[stream_id], self._files[stream_id], snapshot)
            for stream_id, snapshot in view.stems.items()
            if stream_id in self.stems and not self._shows(stream_id, snapshot)
        ]
        return lambda: {
            stream_id: stem.indexed(_high(view, stream_id), files.segments(snapshot.files.values()))
            for stream_id, stem, files, snapshot in changed
        }

    def show(self, view: EpochView, indexes: Indexes) -> None:
        """Make a view the current one. The log must be as far as its epoch."""
        for stream_id, index in indexes.items():
            # The stream may have ended while the index was read.
            if stream_id in self.stems:
                self.stems[stream_id].cover(index)
        if view.epoch.erased != self.epoch.epoch.erased:
            # Combinations of erased rows have left the files.
            for composite_id in self.combinations:
                self.stems[composite_id].empty()
        self.epoch = view
        # The epoch itself has the holes, heartbeats and records up to its position.
        self._holes = [hole for hole in self._holes if hole.row_lo >= _high(view, hole.stream_id)]
        self.backlog.consume(view.epoch.log_version)
        position = view.epoch.position.packed
        self.heartbeats.consume(position)
        self.audit = [record for record in self.audit if record.position > position]

    @property
    def losses(self) -> Losses:
        """The holes that the view's epoch names and those of the log after it."""
        losses = self.epoch.epoch.losses.accept(self.state.losses.accepted)
        for hole in self._holes:
            losses = losses.lose(hole)
        return losses

    def is_outdated(self, view: EpochView) -> bool:
        """Return True if a view disagrees with memory about lost rows: rows are lost that were
        stored, or stored that were lost."""
        holes = [hole for hole in self._holes if hole.row_lo < _high(view, hole.stream_id)]
        old, new = self.epoch.epoch.losses, view.epoch.losses
        newly_accepted = set(old.accepted) != set(new.accepted)
        return newly_accepted or {*old.holes, *holes} != set(new.holes)

    def replace(self, old: Replica) -> None:
        """Take over the histories of keyed streams from an older replica, and forget that.

        Rows never change, so a history stays true when the stem is opened again, unless rows of it
        are lost.
        """
        holed = {hole.stream_id for hole in (*self.losses.holes, *old.losses.holes)}
        for stream_id in (self.keyed.keys() & old.keyed.keys()) - holed:
            self.keyed[stream_id] = old.keyed.pop(stream_id)
        old.forget()

    def forget(self) -> None:
        """Give back the memory. Running answers keep what they have of it."""
        for stem in self.stems.values():
            stem.forget()
        for files in self._files.values():
            files.forget()
        for reader in self._readers.values():
            reader.forget()
        for keyed in self.keyed.values():
            keyed.forget()

    def _open_combinations(self, view: EpochView) -> None:
        """Open the stems of composites that a view is the first to have, and forget those that it
        has no more."""
        composites = {id_: mark for id_, mark in view.epoch.composites.items() if id_ in view.stems}
        for id_ in self.combinations - composites.keys():
            self.stems.pop(id_).forget()
            self._files.pop(id_).forget()
        for id_, mark in composites.items():
            if id_ not in self.stems:
                schema = combinations_schema(len(mark.highs))
                files = StemFiles(self._store.stem(id_), schema, self._memory)
                self._files[id_] = files
                self.stems[id_] = DataStem(self._memory, files.read, files.pick, stored=True)
        self.combinations = set(composites)

    def _is_known(self, hole: Hole) -> bool:
        return any(known.rows == hole.rows for known in self._holes)

    def _shows(self, stream_id: int, snapshot: Snapshot) -> bool:
        current = self.epoch.stems.get(stream_id)
        return current is not None and current.version == snapshot.version

    def _check(self, version: int, entries: Sequence[Entry]) -> None:
        """Raise CorruptStore unless the rows of each stream begin where those before them end."""
        highs: dict[int, int] = {}
        for event in (entry.event for entry in entries):
            if not isinstance(event, Data) or not event.rows:
                continue
            stem = self.stems.get(event.stream_id)
            high = highs.get(event.stream_id, stem.high if stem else 0)
            if event.first_row_id != high:
                raise CorruptStore(
                    f"version {version} of the log gives stream {event.stream_id} rows from id "
                    f"{event.first_row_id} on, but {high} is the next"
                )
            highs[event.stream_id] = high + event.rows

    def _apply_rows(self, entry: Entry, rows: DecodedRows) -> None:
        match entry.event:
            case StreamCreated(stream_id, schema):
                self._open_stem(stream_id, schema)
            case StreamAltered(stream_id, _, altered):
                schema = altered.with_dropped
                self._files[stream_id].alter(stem_schema(schema), schema.optional)
                self._readers[stream_id].alter(schema)
                self.stems[stream_id].alter(stem_schema(schema).names, schema.optional)
            case StreamEnded(stream_id):
                self.stems.pop(stream_id).forget()
                self._files.pop(stream_id).forget()
                self._readers.pop(stream_id).forget()
                if keyed := self.keyed.pop(stream_id, None):
                    keyed.forget()
            case RowsErased(stream_id) if stream_id in self.stems:
                self._erase(stream_id)
            case Data() as event if event.rows:
                batch, first = rows[entry.position.ordinal], event.first_row_id
                if isinstance(batch, Hole):
                    self._holes.append(batch)
                    schema = self.state.streams[event.stream_id].schema
                    # The lost rows keep their ids, so an insert without rows moves the next id on.
                    batch = SplitRows.of(empty_rows(schema))
                stem, version = self.stems[event.stream_id], entry.position.version
                stem.insert(batch, first, first + event.rows, version)

    def _erase(self, stream_id: int) -> None:
        """Forget the erased rows of a stream, and everything that was made with them. Answers in
        progress keep what they have."""
        self.stems[stream_id] = self.stems[stream_id].without(self.state.erased(stream_id).ids)
        self._readers[stream_id].forget()
        if keyed := self.keyed.pop(stream_id, None):
            keyed.forget()
            self.keyed[stream_id] = KeyedStream(self._memory)

    def _open_stem(self, stream_id: int, opened: StreamSchema) -> None:
        # Answers that began before a DROP COLUMN read the column.
        schema = opened.with_dropped
        folder, columns = self._store.stem(stream_id), stem_schema(schema)
        files = StemFiles(folder, columns, self._memory, schema.optional)
        self._files[stream_id] = files
        read_log = self._store.log.read
        reader = StemReader(self._memory, stream_id, schema, files.read, read_log, self._is_known)
        self._readers[stream_id] = reader
        erased = self.state.erased(stream_id).ids
        stem = DataStem(self._memory, reader.read, files.pick, erased=erased)
        if opened.dropped:
            stem.alter(columns.names, schema.optional)
        self.stems[stream_id] = stem
        if schema.key:
            self.keyed[stream_id] = KeyedStream(self._memory)


class DamagedComposites:
    """The composites whose stem, at one version, has a file that can't be read. Thread-safe."""

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}

    def insert(self, composite_id: int, version: int, damage: Exception) -> None:
        if not self.probe(composite_id, version):
            log.error("%s; its combinations are joined here", damage)
            self._versions[composite_id] = version

    def probe(self, composite_id: int, version: int) -> bool:
        """Return True if that version of the composite's stem is known to be damaged."""
        return self._versions.get(composite_id) == version


def _high(view: EpochView, stream_id: int) -> int:
    mark = view.epoch.stem(stream_id)
    return mark.high if mark else 0


NOTHING: Mapping[int, int] = {}


def _row_bytes(entries: Sequence[Entry]) -> Counter[int]:
    """Return the bytes of rows that a commit brings to each stream."""
    sizes: Counter[int] = Counter()
    for entry in entries:
        if isinstance(entry.event, Data) and entry.event.payload:
            sizes[entry.event.stream_id] += len(entry.event.payload)
    return sizes


@dataclass(frozen=True, slots=True)
class _Commits:
    """Neighbouring commits: the version of the last, the stamp of the first, the bytes of all; for
    each stream the bytes of its rows, and the stamp of the first commit that has some."""

    version: int
    stamp: int
    nbytes: int
    of_streams: Counter[int]
    stamps: Mapping[int, int]
    commits: int = 1

    def joined(self, later: _Commits) -> _Commits:
        nbytes, commits = self.nbytes + later.nbytes, self.commits + later.commits
        # A stream in both keeps the stamp of the earlier commit.
        of_streams, stamps = self.of_streams + later.of_streams, {**later.stamps, **self.stamps}
        return _Commits(later.version, self.stamp, nbytes, of_streams, stamps, commits)


class Backlog:
    """The part of the log that the engine has not consumed: its bytes in all and in rows of each
    stream, and since when.

    It has at most _MAX_MARKS marks, so that an engine may be down for long. If there would be more,
    marks are joined in pairs: each mark but the last then has equally many commits, and counts
    until the engine has consumed them all.
    """

    def __init__(self) -> None:
        self._marks: deque[_Commits] = deque()
        self._commits_per_mark = 1
        self.nbytes = 0
        self.of_streams: Counter[int] = Counter()
        self._oldest: dict[int, int] = {}

    @property
    def oldest(self) -> int | None:
        """The stamp of the first commit that is not consumed."""
        return self._marks[0].stamp if self._marks else None

    def oldest_of(self, stream_id: int) -> int | None:
        """Return the stamp of the first rows of a stream that are not consumed."""
        return self._oldest.get(stream_id)

    def append(
        self, version: int, stamp: int, nbytes: int, of_streams: Mapping[int, int] = NOTHING
    ) -> None:
        """Add the next commit, whose file has `nbytes` bytes; `of_streams` are the bytes of each
        stream's rows."""
        stamps = dict.fromkeys(of_streams, stamp)
        mark = _Commits(version, stamp, nbytes, Counter(of_streams), stamps)
        self.nbytes += nbytes
        self.of_streams.update(of_streams)
        for stream_id in of_streams:
            self._oldest.setdefault(stream_id, stamp)
        if self._marks and self._marks[-1].commits < self._commits_per_mark:
            mark = self._marks.pop().joined(mark)
        self._marks.append(mark)
        if len(self._marks) > _MAX_MARKS:
            self._halve()

    def consume(self, version: int) -> None:
        """Remove the commits up to a version."""
        changed: set[int] = set()
        while self._marks and self._marks[0].version <= version:
            mark = self._marks.popleft()
            self.nbytes -= mark.nbytes
            self.of_streams -= mark.of_streams
            changed.update(mark.stamps)
        self._find_oldest(changed)
        if not self._marks:
            self._commits_per_mark = 1

    def _find_oldest(self, stream_ids: set[int]) -> None:
        """Find the stamps of the first remaining rows of some streams."""
        for stream_id in stream_ids:
            del self._oldest[stream_id]
        unresolved = {stream_id for stream_id in stream_ids if self.of_streams[stream_id]}
        # Marks are in the order of the log, so the first with rows of a stream is its oldest.
        for mark in self._marks:
            if not unresolved:
                return
            streams = unresolved & mark.stamps.keys()
            self._oldest.update((stream_id, mark.stamps[stream_id]) for stream_id in streams)
            unresolved -= streams

    def _halve(self) -> None:
        marks = list(self._marks)
        pairs = zip(marks[::2], marks[1::2], strict=False)
        self._marks = deque(first.joined(second) for first, second in pairs)
        self._marks.extend(marks[len(marks) & ~1 :])
        self._commits_per_mark *= 2
