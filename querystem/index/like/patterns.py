"""Many LIKE patterns as arrays, and the texts that match each of them.

A pattern is found by its anchor, its longest piece; what else it asks for is checked only for
texts that have the anchor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from datastem.arrays import Array, Int64s, UInt8s
from querystem.index.byte_slices import ByteSlices, expand
from querystem.index.hashed.combinations import DistinctRows, take
from querystem.index.like.anchors import AnchorPlace, AnchorSearch, AnchorTable, KeyFilter, parts_of
from querystem.index.like.checks import Checker
from querystem.index.like.pieces import Check, PatternPieces

# Texts are searched in runs of so many rows and bytes, which bounds what a run takes.
_RUN_ROWS, _RUN_BYTES = 1 << 13, 1 << 20
_PAIRS_AT_ONCE = 1 << 20
# The keys of anchors at the edges of texts cost time in proportion to the longest of them.
_MAX_ANCHOR_BYTES = 64

_SLICE_FIELDS = "begins", "ends", "content"
_PIECE_FIELDS = "firsts", "starts", "ends", "has_any", "has_one"
_TABLE_FIELDS = "lengths", "keys", "begins", "anchors", "offsets"

# Rows and patterns: row `rows[i]` matches the pattern at `places[i]`.
PatternPairs = tuple[Int64s, Int64s]


@dataclass(frozen=True, slots=True)
class Patterns:
    """Distinct patterns: pattern `owned[i]` has anchor `literals[k]`, if i is in the run of k from
    `begins[k]` to `begins[k + 1]`. `tables` find the anchors in texts."""

    texts: pa.Array
    pieces: PatternPieces
    checks: UInt8s
    literals: ByteSlices
    tables: Mapping[AnchorPlace, AnchorTable]
    begins: Int64s
    owned: Int64s
    _filters: dict[AnchorPlace, KeyFilter] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: pa.Array) -> Patterns:
        """Return distinct patterns, none of which may be NULL."""
        pieces = PatternPieces.of(texts)
        slices, kinds = _anchors(pieces)
        is_cut = slices.lengths > _MAX_ANCHOR_BYTES
        anchors = _binaries(_cut(slices, kinds))
        distinct = DistinctRows.of([anchors, kinds])
        literals = ByteSlices.of(take(anchors, distinct.first))
        kinds = kinds[distinct.first]
        tables = {
            place: AnchorTable.of(literals, np.flatnonzero(kinds == place), place)
            for place in AnchorPlace
            if (kinds == place).any()
        }
        owned = np.argsort(distinct.places, kind="stable")
        counts = np.bincount(distinct.places, minlength=len(literals))
        begins = np.append(0, np.cumsum(counts))
        return cls(texts, pieces, pieces.checks(is_cut), literals, tables, begins, owned)

    def arrays(self) -> dict[str, Array]:
        """Return all that this consists of but the texts, as arrays by name."""
        pieces, literals = self.pieces, self.literals
        arrays: dict[str, Array] = {
            "checks": self.checks,
            "anchor_begins": self.begins,
            "owned": self.owned,
            "literal_begins": literals.begins,
            "literal_ends": literals.ends,
            "literal_content": literals.content,
            "piece_begins": pieces.pieces.begins,
            "piece_ends": pieces.pieces.ends,
            "piece_content": pieces.pieces.content,
        }
        arrays |= {f"pattern_{name}": getattr(pieces, name) for name in _PIECE_FIELDS}
        for place, table in self.tables.items():
            arrays |= {f"table_{place}_{name}": getattr(table, name) for name in _TABLE_FIELDS}
        return arrays

    @classmethod
    def restored(cls, texts: pa.Array, arrays: Mapping[str, Any]) -> Patterns:
        """Return the patterns of these texts, whose `arrays` these are."""
        return cls(
            texts,
            PatternPieces(
                ByteSlices(*[arrays[f"piece_{name}"] for name in _SLICE_FIELDS]),
                *[arrays[f"pattern_{name}"] for name in _PIECE_FIELDS],
            ),
            arrays["checks"],
            ByteSlices(*[arrays[f"literal_{name}"] for name in _SLICE_FIELDS]),
            {
                place: AnchorTable(*[arrays[f"table_{place}_{name}"] for name in _TABLE_FIELDS])
                for place in AnchorPlace
                if f"table_{place}_keys" in arrays
            },
            arrays["anchor_begins"],
            arrays["owned"],
        )

    def anchor_place(self, place: int) -> AnchorPlace:
        """Return where the anchor of the pattern at a place stands."""
        run = int(np.flatnonzero(self.owned == place)[0])
        anchor = int(np.searchsorted(self.begins, run, side="right")) - 1
        return next(kind for kind, table in self.tables.items() if anchor in table.anchors)

    def __len__(self) -> int:
        return len(self.texts)

    def find(self, texts: pa.Array) -> Iterator[PatternPairs]:
        """Yield the rows and patterns that match, rows by rows; no pair comes twice. A NULL matches
        nothing."""
        valid = texts.is_valid().to_numpy(zero_copy_only=False) if texts.null_count else None
        for first, run in _runs_of(texts):
            octets = ByteSlices.of(run)
            checker = Checker(self.texts, self.pieces, run, octets)
            # The kernel takes long for each pattern, so its pairs wait for the others of the run.
            kernel_pairs = WaitingPairs(_PAIRS_AT_ONCE)
            for rows, anchors in self._anchored(octets):
                if valid is not None:
                    is_valid = valid[first + rows]
                    rows, anchors = rows[is_valid], anchors[is_valid]
                counts = self.begins[anchors + 1] - self.begins[anchors]
                for part in parts_of(counts, _PAIRS_AT_ONCE):
                    pairs, owned = expand(self.begins[anchors[part]], counts[part])
                    pair_rows, places = rows[part][pairs], self.owned[owned]
                    checks = self.checks[places]
                    is_kernel = checks == Check.KERNEL
                    if is_kernel.any():
                        for waiting in kernel_pairs.put(pair_rows[is_kernel], places[is_kernel]):
                            yield _counted_from(first, checker.by_kernel(*waiting))
                        kept = ~is_kernel
                        pair_rows, places, checks = pair_rows[kept], places[kept], checks[kept]
                    yield _counted_from(first, checker.check(pair_rows, places, checks))
            for waiting in kernel_pairs.take():
                yield _counted_from(first, checker.by_kernel(*waiting))

    def _anchored(self, octets: ByteSlices) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield the rows and the anchors that they have; no pair comes twice."""
        for place, table in self.tables.items():
            if place not in self._filters:
                self._filters[place] = table.filter()
            search = AnchorSearch(table, self._filters[place], self.literals, place)
            yield from search.find(octets)


def _counted_from(first: int, pairs: PatternPairs) -> PatternPairs:
    """Return pairs whose rows are counted from `first` on."""
    return pairs[0] + first, pairs[1]


class WaitingPairs:
    """Pairs of a row and a pattern, collected until there are `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pairs: list[PatternPairs] = []

    def put(self, rows: Int64s, places: Int64s) -> Iterator[PatternPairs]:
        """Add pairs; yield all if they are many."""
        self._pairs.append((rows, places))
        if sum(len(pair_rows) for pair_rows, _ in self._pairs) >= self._most:
            yield from self.take()

    def take(self) -> Iterator[PatternPairs]:
        """Yield all pairs, if there are any."""
        if self._pairs:
            rows, places = map(np.concatenate, zip(*self._pairs, strict=True))
            self._pairs = []
            yield rows, places


def _anchors(pieces: PatternPieces) -> tuple[ByteSlices, Int64s]:
    """Return the anchor of each pattern and its place: the longest piece, which counts twice if it
    begins or ends the pattern. A pattern without pieces has an empty anchor at its begin."""
    owners = np.repeat(np.arange(len(pieces.starts)), pieces.counts)
    numbers = np.arange(len(owners))
    is_begin = (numbers == pieces.firsts[owners]) & pieces.starts[owners]
    is_end = (numbers == pieces.firsts[owners + 1] - 1) & pieces.ends[owners] & ~is_begin
    kinds = np.where(
        is_begin, AnchorPlace.BEGIN, np.where(is_end, AnchorPlace.END, AnchorPlace.ANYWHERE)
    )
    weights = pieces.pieces.lengths * np.where(kinds == AnchorPlace.ANYWHERE, 1, 2)
    order = np.lexsort((numbers, -weights, owners))
    has_pieces = pieces.counts > 0
    chosen = order[pieces.firsts[:-1][has_pieces]]
    begins = np.zeros(len(pieces.starts), np.int64)
    ends, places = begins.copy(), np.full(len(begins), AnchorPlace.BEGIN, np.int64)
    begins[has_pieces] = pieces.pieces.begins[chosen]
    ends[has_pieces] = pieces.pieces.ends[chosen]
    places[has_pieces] = kinds[chosen]
    return ByteSlices(begins, ends, pieces.pieces.content), places


def _cut(anchors: ByteSlices, kinds: Int64s) -> ByteSlices:
    """Return the first bytes of anchors that are too long, or the last if they end the pattern."""
    is_end = kinds == AnchorPlace.END
    begins = np.where(
        is_end, np.maximum(anchors.ends - _MAX_ANCHOR_BYTES, anchors.begins), anchors.begins
    )
    return ByteSlices(begins, np.minimum(anchors.ends, begins + _MAX_ANCHOR_BYTES), anchors.content)


def _binaries(strings: ByteSlices) -> pa.Array:
    """Return byte strings as an Arrow array."""
    lengths = strings.lengths
    _, places = expand(strings.begins, lengths)
    edges = np.append(0, np.cumsum(lengths)).astype(np.int32)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(strings.content[places])]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def _runs_of(texts: pa.Array) -> Iterator[tuple[int, pa.Array]]:
    """Yield the texts in runs, each with the number of its first row."""
    if len(texts) <= _RUN_ROWS and texts.nbytes <= _RUN_BYTES:
        yield 0, texts
        return
    edges = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]
    first = 0
    while first < len(texts):
        last = int(np.searchsorted(edges, int(edges[first]) + _RUN_BYTES, side="right")) - 1
        last = min(max(last, first + 1), first + _RUN_ROWS, len(texts))
        yield first, texts.slice(first, last - first)
        first = last
