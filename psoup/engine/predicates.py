"""The query SteMs of a worker process, kept up to date from the predicates table.

A worker reads each commit of that table once. Its indexes live as long as the process, so a step
costs only what changed since the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from psoup.store.delta import DeltaFolder, Snapshot
from psoup.store.layout import PREDICATES
from psoup.store.tables import read_files, read_newest
from querystem.expressions import Expression, columns_of, from_json
from querystem.index import QueryStem

Ranges = tuple[tuple[int, int], ...]

EVERY: Ranges = ((0, 1 << 62),)
_SUBSETS = 4


class Stem:
    """The predicates of one stream whose ids are in `ranges`, as an index over them."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._members: dict[int, frozenset[str]] = {}
        self.index = QueryStem()

    @property
    def columns(self) -> frozenset[str]:
        """What a probe reads of a row."""
        return frozenset().union(*set(self._members.values()))

    @property
    def empty(self) -> bool:
        return not self._members

    def insert(self, predicate: int, where: Expression) -> None:
        if any(lo <= predicate < hi for lo, hi in self._ranges):
            self._members[predicate] = frozenset(columns_of(where))
            self.index.insert(predicate, where)

    def remove(self, predicate: int) -> None:
        if self._members.pop(predicate, None) is not None:
            self.index.remove(predicate)


class Predicates:
    """The live predicates of a store at one version of its table."""

    def __init__(self, folder: DeltaFolder) -> None:
        self._folder = folder
        self._version = -1
        self._live: dict[int, dict[int, str]] = {}
        self._stream_of: dict[int, int] = {}
        self._stems: dict[tuple[int, Ranges], Stem] = {}

    def advance(self, version: int) -> None:
        """Brings everything to `version`; commits that only add rows cost only those rows."""
        if version == self._version:
            return
        added = self._added(version)
        if added is None:
            self._reload(version)
        else:
            self._apply(read_files(self._folder, added, PREDICATES))
        self._version = version

    def live(self, stream_id: int) -> Iterable[int]:
        return self._live.get(stream_id, {}).keys()

    def stem(self, stream_id: int, ranges: Ranges = EVERY) -> Stem:
        key = stream_id, ranges
        if key not in self._stems:
            stem = self._stems[key] = Stem(ranges)
            for predicate, text in self._live.get(stream_id, {}).items():
                stem.insert(predicate, from_json(json.loads(text)))
            self._forget(stream_id)
        return self._stems[key]

    def _added(self, version: int) -> Snapshot | None:
        """The files that came since; None where others went, or where nothing is known yet."""
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
        """After a compaction or a roll-back: the difference to the whole table."""
        rows = read_newest(self._folder, self._folder.snapshot(version), PREDICATES)
        for gone in self._stream_of.keys() - set(rows.column("predicate_id").to_pylist()):
            self._remove(gone)
        self._apply(rows)

    def _apply(self, rows: pa.Table) -> None:
        for row in rows.sort_by("position").to_pylist():
            predicate = row["predicate_id"]
            if row["ended"]:
                self._remove(predicate)
            elif predicate not in self._stream_of:
                self._insert(predicate, row["stream_id"], row["key"])

    def _insert(self, predicate: int, stream_id: int, key: str) -> None:
        self._stream_of[predicate] = stream_id
        self._live.setdefault(stream_id, {})[predicate] = key
        stems = [stem for (owner, _), stem in self._stems.items() if owner == stream_id]
        if stems:
            where = from_json(json.loads(key))
            for stem in stems:
                stem.insert(predicate, where)

    def _remove(self, predicate: int) -> None:
        stream_id = self._stream_of.pop(predicate, None)
        if stream_id is None:
            return
        del self._live[stream_id][predicate]
        for (owner, _), stem in self._stems.items():
            if owner == stream_id:
                stem.remove(predicate)

    def _forget(self, stream_id: int) -> None:
        """Back-fill asks for ever other subsets of a stream; the oldest make room."""
        subsets = [key for key in self._stems if key[0] == stream_id and key[1] != EVERY]
        for key in subsets[:-_SUBSETS]:
            del self._stems[key]


@lru_cache(maxsize=8)
def predicates_of(root: str) -> Predicates:
    """This process's predicates of the store at `root`."""
    return Predicates(DeltaFolder(Path(root) / "predicates"))
