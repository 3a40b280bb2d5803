"""The query SteMs of a worker process, kept up to date from the predicates table.

A worker reads each commit of that table once. Its indexes live as long as the process, so a step
costs only the predicates that changed since the previous one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Int64s, Mask
from psoup.engine.matching.index_cache import MIN_CACHED_PREDICATES, IndexCache
from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.layout import PREDICATES
from psoup.store.tables import read_files, read_newest_columns
from querystem.index import QueryStem

# A part is merged into the previous one unless that is this many times as large.
_PART_SIZE_RATIO = 4
# The columns that say which row of a predicate is the newest, and whether it has ended.
_CHANGES = ("position", "ended")


class PredicateTexts:
    """The live predicates of a stream and their texts, in columns without an object for each.

    They are stored in parts, each sorted by id; no id is in two parts. A removed predicate leaves
    its part at the next merge. The texts of a part are read when they are first needed: with an
    index from the cache they are not.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def ids(self) -> Int64s:
        """Return the ids of the live predicates, unordered."""
        return np.concatenate([np.empty(0, np.int64), *[part.live()[0] for part in self._parts]])

    @property
    def count(self) -> int:
        """The number of live predicates."""
        return sum(int(part.alive.sum()) for part in self._parts)

    @property
    def complete(self) -> bool:
        """Whether all texts have been read."""
        return all(part.texts is not None for part in self._parts)

    def complete_with(self, ids: Int64s, texts: pa.Array) -> None:
        """Set the texts that have not been read. `ids` must ascend, and all live ones be there."""
        for part in self._parts:
            if part.texts is None:
                part.set_texts(ids, texts)

    def parts(self) -> Iterator[tuple[Int64s, pa.Array]]:
        """Yield the ids and texts of the live predicates, part by part. They must be complete."""
        for part in self._parts:
            ids, texts = part.live()
            assert texts is not None
            yield ids, texts

    def contains(self, ids: Int64s) -> Mask:
        """Return a mask of the ids that are live."""
        contained = np.zeros(len(ids), np.bool_)
        for part in self._parts:
            places, matches = part.find(ids)
            contained[matches] = part.alive[places[matches]]
        return contained

    def insert(self, ids: Int64s, texts: pa.Array | None = None) -> None:
        """Add predicates, perhaps without their texts. `ids` must ascend, and none of them may be
        live."""
        self._parts.append(_Part(ids, texts))
        # Sizes fall geometrically, so a predicate is copied a logarithmic number of times.
        while len(self._parts) > 1 and len(self._parts[-2]) < _PART_SIZE_RATIO * len(
            self._parts[-1]
        ):
            parts = [self._parts.pop().live(), self._parts.pop().live()]
            joined = np.concatenate([ids for ids, _ in parts])
            order = np.argsort(joined)
            texts = [texts for _, texts in parts if texts is not None]
            # One part without texts makes the merged part one without.
            is_complete = len(texts) == len(parts)
            merged = pa.concat_arrays(texts).take(pa.array(order)) if is_complete else None
            self._parts.append(_Part(joined[order], merged))

    def remove(self, ids: Int64s) -> None:
        """Remove predicates, all of which must be live."""
        for part in self._parts:
            places, matches = part.find(ids)
            part.alive[places[matches]] = False

    def _check(self) -> None:
        assert len(np.unique(self.ids())) == len(self.ids())
        for part in self._parts:
            assert (np.diff(part.ids) > 0).all()
            assert part.texts is None or len(part.ids) == len(part.texts)


class _Part:
    """Predicates sorted by id, with their texts, if those were read, and a mask of those that were
    not removed."""

    def __init__(self, ids: Int64s, texts: pa.Array | None) -> None:
        self.ids, self.texts = ids, texts
        self.alive = np.ones(len(ids), np.bool_)

    def __len__(self) -> int:
        return len(self.ids)

    def live(self) -> tuple[Int64s, pa.Array | None]:
        """Return the ids and texts without the removed predicates."""
        if self.alive.all():
            return self.ids, self.texts
        texts = None if self.texts is None else self.texts.filter(pa.array(self.alive))
        return self.ids[self.alive], texts

    def set_texts(self, ids: Int64s, texts: pa.Array) -> None:
        """Take the texts of the live predicates out of those of ascending `ids`; leave the removed
        ones out."""
        self.ids = self.ids[self.alive]
        self.alive = np.ones(len(self.ids), np.bool_)
        places = np.searchsorted(ids, self.ids)
        assert np.array_equal(ids[places], self.ids)
        self.texts = texts.take(pa.array(places))

    def find(self, ids: Int64s) -> tuple[Int64s, Mask]:
        """Return the place of each id in this part, and a mask of the ids that are there."""
        # Ids past the last one are compared with it, and differ. A part is never empty.
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return places, self.ids[places] == ids


Ranges = tuple[tuple[int, int], ...]

ALL_IDS: Ranges = ((0, sys.maxsize),)
_MAX_SUBSETS = 4


class Stem:
    """An index over the predicates of one stream whose ids are in `ranges`."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self.index = QueryStem()

    @property
    def columns(self) -> frozenset[str]:
        """The columns that a probe may read of a row."""
        return self.index.columns

    @property
    def empty(self) -> bool:
        return not len(self.index)

    def insert(self, ids: Int64s, texts: pa.Array) -> None:
        inside = np.zeros(len(ids), np.bool_)
        for lo, hi in self._ranges:
            inside |= (ids >= lo) & (ids < hi)
        self.index.insert_texts(ids[inside], texts.filter(pa.array(inside)))

    def remove(self, predicate: int) -> None:
        if predicate in self.index:
            self.index.remove(predicate)


class LivePredicates:
    """The live predicates of a store at one version of its table."""

    def __init__(self, folder: DeltaFolder, cache: IndexCache | None = None) -> None:
        self._folder = folder
        self._cache = cache or IndexCache(folder.root)
        # The version that everything is at, and the one that is being read.
        self._version = self._reached = -1
        self._excluded: Int64s = np.empty(0, np.int64)
        self._live: dict[int, PredicateTexts] = {}
        self._stems: dict[tuple[int, Ranges], Stem] = {}

    def advance(self, version: int, excluded: Sequence[int] | Int64s = ()) -> None:
        """Bring everything to `version`, without the predicates in `excluded`.

        Commits that only add rows cost only those rows. After an error everything is read again.
        """
        excluded_ids = np.unique(np.asarray(excluded, np.int64))
        # The texts of excluded predicates were never kept, so a released one must be read again.
        if not np.array_equal(excluded_ids, self._excluded):
            self.forget()
            self._excluded = excluded_ids
        if version == self._version:
            return
        try:
            self._advance(version)
        except BaseException:
            self.forget()
            raise

    def forget(self) -> None:
        """Drop everything, so that `advance` reads it again."""
        self._version, self._live, self._stems = -1, {}, {}

    def discard(self) -> None:
        """Drop everything, and this machine's files of built indexes: after a failed task each
        index is built again from its texts."""
        self.forget()
        self._cache.remove_all()

    def _advance(self, version: int) -> None:
        added = self._added(version)
        # Texts that are read meanwhile are those of the new version.
        self._reached = version
        if added is None:
            self._reload(version)
        else:
            self._apply(read_files(self._folder, added, PREDICATES))
        self._version = version

    def streams(self) -> list[int]:
        """Return the ids of the streams that have had predicates."""
        return list(self._live)

    def live(self, stream_id: int) -> Int64s:
        """Return the ids of a stream's live predicates, unordered."""
        return self._of(stream_id).ids()

    def stem(self, stream_id: int, ranges: Ranges = ALL_IDS) -> Stem:
        """Return the index over a stream's live predicates with ids in `ranges`."""
        key = stream_id, ranges
        if key not in self._stems:
            self._stems[key] = self._build(stream_id, ranges)
            self._forget(stream_id)
        return self._stems[key]

    def _build(self, stream_id: int, ranges: Ranges) -> Stem:
        """Return a new index, mapped from a file of this machine if another worker built it."""
        stem, live = Stem(ranges), self._of(stream_id)
        # An index of less than the whole stream, or without excluded predicates, is soon dropped.
        version = None
        if ranges == ALL_IDS and not len(self._excluded) and live.count >= MIN_CACHED_PREDICATES:
            version = self._version_name()
        cached = None if version is None else self._cache.load(stream_id, version)
        if cached is not None and len(cached) == live.count:
            stem.index = cached
            return stem
        for ids, texts in self._complete(live).parts():
            stem.insert(ids, texts)
        if version is not None:
            self._cache.store(stream_id, version, stem.index)
        return stem

    def _version_name(self) -> str | None:
        """Return what identifies the current version, also in a store that was restored: the names
        of its files are random. None if its commit is behind a checkpoint."""
        commit = self._folder.read_commit(self._version)
        if commit is None:
            return None
        paths = [*[file.path for file in commit.added], *commit.removed]
        return f"{self._version} {paths}" if paths else None

    def _complete(self, live: PredicateTexts) -> PredicateTexts:
        """Return the predicates with all their texts."""
        if not live.complete:
            live.complete_with(*self._texts())
        return live

    def _texts(self) -> tuple[Int64s, pa.Array]:
        """Read the texts of all predicates; return their ids, which ascend, and the texts."""
        rows = self._read(self._reached, ["predicate_id", "key", *_CHANGES])
        ids, first = np.unique(rows.column("predicate_id").to_numpy(), return_index=True)
        return ids, rows.column("key").combine_chunks().take(pa.array(first))

    def _read(self, version: int, columns: Sequence[str]) -> pa.Table:
        snapshot = self._folder.snapshot(version)
        return read_newest_columns(self._folder, snapshot, PREDICATES, columns)

    def _of(self, stream_id: int) -> PredicateTexts:
        return self._live.setdefault(stream_id, PredicateTexts())

    def _added(self, version: int) -> Snapshot | None:
        """Return the files that were added since the current version; None if files were removed,
        or if nothing was read yet."""
        if not 0 <= self._version < version:
            return None
        added = Snapshot(self._version)
        for number in range(self._version + 1, version + 1):
            commit = self._folder.read_commit(number)
            if commit is None or commit.removed:
                return None
            added = added.apply(commit)
        return added

    def _reload(self, version: int) -> None:
        """Apply the difference to the whole table, after a compaction or a roll-back."""
        rows = self._read(version, ["predicate_id", "stream_id", *_CHANGES])
        live_ids = rows.column("predicate_id").to_numpy()
        for stream_id, live in self._live.items():
            self._remove(stream_id, np.setdiff1d(live.ids(), live_ids))
        self._apply(rows)

    def _apply(self, rows: pa.Table) -> None:
        """Apply rows of the table. An id that has ended never returns, so its earlier rows are
        ignored."""
        rows = rows.sort_by("position")
        ended = rows.column("ended").to_numpy()
        ended_ids = rows.column("predicate_id").to_numpy()[ended]
        for stream_id in list(self._live):
            self._remove(stream_id, ended_ids)
        rows = rows.filter(pa.array(~ended))
        rows = rows.filter(pa.array(~np.isin(rows.column("predicate_id").to_numpy(), ended_ids)))
        for stream_id in pc.unique(rows.column("stream_id")).to_pylist():
            self._insert(stream_id, rows.filter(pc.equal(rows.column("stream_id"), stream_id)))

    def _insert(self, stream_id: int, rows: pa.Table) -> None:
        """Add the predicates of `rows` that are not live yet. The table has a row for a predicate
        each time its number of users changes."""
        # Distinct ids, ascending, and the first row of each.
        ids, first = np.unique(rows.column("predicate_id").to_numpy(), return_index=True)
        new = ~self._of(stream_id).contains(ids) & ~np.isin(ids, self._excluded)
        if not new.any():
            return
        stems = [stem for (owner, _), stem in self._stems.items() if owner == stream_id]
        texts = None
        if "key" in rows.column_names:
            texts = rows.column("key").combine_chunks().take(pa.array(first[new]))
        elif stems:
            every_id, every_text = self._texts()
            texts = every_text.take(pa.array(np.searchsorted(every_id, ids[new])))
        self._of(stream_id).insert(ids[new], texts)
        for stem in stems:
            stem.insert(ids[new], texts)

    def _remove(self, stream_id: int, ids: Int64s) -> None:
        removed = np.unique(ids)
        removed = removed[self._live[stream_id].contains(removed)]
        self._live[stream_id].remove(removed)
        for (owner, _), stem in self._stems.items():
            if owner == stream_id:
                for predicate in removed.tolist():
                    stem.remove(predicate)

    def _forget(self, stream_id: int) -> None:
        """Drop the oldest subsets of a stream: back-fill uses each one for a short time only."""
        subsets = [key for key in self._stems if key[0] == stream_id and key[1] != ALL_IDS]
        for key in subsets[:-_MAX_SUBSETS]:
            del self._stems[key]


@lru_cache(maxsize=8)
def predicates_of(root: str) -> LivePredicates:
    """Return this process's predicates of the store at `root`."""
    return LivePredicates(DeltaFolder(Path(root) / "predicates"))


def forget_predicates(root: str) -> None:
    """Let this process read the predicates of the store at `root` again, and make new indexes."""
    predicates_of(root).discard()
