"""Anchors: the literal that a text must have for a pattern to match, found in many texts at once.

An anchor stands at the begin of the text, at its end, or anywhere. The slices of texts at which it
may stand have a key each, and so have the anchors. A filter rules out most slices; the others are
looked up by binary search and compared byte by byte.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from datastem.arrays import Array, Int64s, UInt64s
from querystem.index.byte_slices import (
    MASKS,
    WORD_BYTES,
    ByteSlices,
    equal_slices,
    expand,
    first_keys,
    mix_keys,
    slice_keys,
)

# How many keys are computed, and candidates compared, at a time: they stay near the processor.
_KEYS_AT_ONCE = 1 << 15
_CANDIDATES_AT_ONCE = 1 << 18
# The filter has so many places for each key, up to its greatest size.
_FILTER_PLACES, _FILTER_BITS = 16, 20
_LOW = 0xFFFFFFFF

# Texts and anchors: text `rows[i]` has the anchor `anchors[i]`.
AnchorPairs = tuple[Int64s, Int64s]


class AnchorPlace(enum.IntEnum):
    """Where in a text an anchor stands."""

    BEGIN = 0
    END = 1
    ANYWHERE = 2


@dataclass(frozen=True, slots=True)
class AnchorTable:
    """The anchors with one place, by key. `lengths` are the distinct lengths of slices, ascending.
    Key `keys[i]`, ascending, has the anchors `anchors[begins[i]:begins[i + 1]]`, in which the slice
    stands at `offsets`."""

    lengths: Int64s
    keys: UInt64s
    begins: Int64s
    anchors: Int64s
    offsets: Int64s

    @classmethod
    def of(cls, literals: ByteSlices, anchors: Int64s, place: AnchorPlace) -> AnchorTable:
        """Return the table of the anchors with these numbers among the literals."""
        chosen = literals.take(anchors)
        offsets = np.zeros(len(anchors), np.int64)
        if place is AnchorPlace.ANYWHERE:
            offsets = _rarest_words(chosen)
            begins = chosen.begins + offsets
            ends = begins + np.minimum(chosen.lengths, WORD_BYTES)
            chosen = ByteSlices(begins, ends, chosen.content)
        keys, places = np.unique(slice_keys(chosen), return_inverse=True)
        order = np.argsort(places, kind="stable")
        begins = np.append(0, np.cumsum(np.bincount(places, minlength=len(keys))))
        return cls(np.unique(chosen.lengths), keys, begins, anchors[order], offsets[order])

    def filter(self) -> KeyFilter:
        return KeyFilter(self.keys)


class KeyFilter:
    """A table that says of the leading bits of a key whether an anchor has such a key."""

    def __init__(self, keys: UInt64s) -> None:
        bits = min((len(keys) * _FILTER_PLACES).bit_length(), _FILTER_BITS)
        self._shift = np.uint64(64 - bits)
        self._occurs = np.zeros(1 << bits, np.bool_)
        self._occurs[(keys >> self._shift).view(np.int64)] = True

    def passed(self, keys: UInt64s) -> Int64s:
        """Return the places of the keys, in flat order, that an anchor may have."""
        return np.flatnonzero(self._occurs.take((keys >> self._shift).view(np.int64)))


def _rarest_words(literals: ByteSlices) -> Int64s:
    """Return the offset in each literal of the word of eight bytes that the fewest literals have;
    0 for literals without such a word."""
    counts = np.maximum(literals.lengths - WORD_BYTES + 1, 1)
    owners, places = expand(literals.begins, counts)
    _, codes, occurrences = np.unique(
        literals.words[places], return_inverse=True, return_counts=True
    )
    order = np.lexsort((occurrences[codes], owners))
    firsts = order[np.append(0, np.cumsum(counts)[:-1])]
    offsets: Int64s = places[firsts] - literals.begins
    return offsets


class AnchorSearch:
    """The search for a table's anchors in texts."""

    def __init__(
        self, table: AnchorTable, key_filter: KeyFilter, literals: ByteSlices, place: AnchorPlace
    ) -> None:
        self._table, self._filter, self._literals, self._place = table, key_filter, literals, place

    def find(self, texts: ByteSlices) -> Iterator[AnchorPairs]:
        """Yield the texts and anchors that go together; no pair comes twice."""
        if self._place is AnchorPlace.ANYWHERE:
            return _distinct(self._find(texts))
        return self._find(texts)

    def _find(self, texts: ByteSlices) -> Iterator[AnchorPairs]:
        """Yield the texts and anchors that go together, in the order of the texts' bytes; a pair
        comes as often as the text has the anchor in that place."""
        lengths = self._table.lengths
        step = max(_KEYS_AT_ONCE // len(lengths), 1)
        is_anywhere = self._place is AnchorPlace.ANYWHERE
        count = len(texts.content) - WORD_BYTES if is_anywhere else len(texts)
        for begin in range(0, count, step):
            end = min(begin + step, count)
            if is_anywhere:
                keys = first_keys(texts.words[begin:end], lengths[:, None])
                # A column of the keys is a place of the texts' bytes.
                passed = self._filter.passed(keys)
                if len(lengths) > 1:
                    passed = passed[np.argsort(passed % (end - begin), kind="stable")]
                places = passed % (end - begin) + begin
                rows = np.searchsorted(texts.begins, places, side="right") - 1
            else:
                keys, begins = self._edge_keys(texts, slice(begin, end))
                passed = self._filter.passed(keys)
                rows = passed % (end - begin) + begin
                places = begins.reshape(-1)[passed] if begins.ndim == 2 else begins[rows - begin]
            fits = places + lengths[passed // (end - begin)] <= texts.ends[rows]
            fits &= places >= texts.begins[rows]
            yield from self._compare(
                texts, rows[fits], places[fits], keys.reshape(-1)[passed[fits]]
            )

    def _edge_keys(self, texts: ByteSlices, rows: slice) -> tuple[UInt64s, Int64s]:
        """Return the keys of the slices at the begin, or the end, of texts, a line for each length;
        and the places at which the slices begin, for all lengths or for each."""
        lengths, words = self._table.lengths[:, None], texts.words
        begins = texts.begins[rows]
        if self._place is AnchorPlace.END:
            # A text that is too short has a slice that begins before it, which is dropped later.
            begins = np.maximum(texts.ends[rows] - lengths, 0)
        keys = first_keys(words[begins], lengths)
        for place in range(WORD_BYTES, int(lengths[-1, 0]), WORD_BYTES):
            # The lengths ascend, so the longer slices are the last lines.
            line = int(np.searchsorted(self._table.lengths, place, side="right"))
            longer = (begins[line:] if begins.ndim == 2 else begins) + place
            longer = np.minimum(longer, len(words) - 1)
            masks = MASKS.take(np.minimum(lengths[line:] - place, WORD_BYTES))
            keys[line:] = mix_keys(keys[line:], words[longer] & masks)
        return keys, begins

    def _compare(
        self, texts: ByteSlices, rows: Int64s, places: Int64s, keys: UInt64s
    ) -> Iterator[AnchorPairs]:
        """Yield the texts and anchors of slices at `places` of the texts' bytes, with these
        keys."""
        table = self._table
        key_places = np.minimum(np.searchsorted(table.keys, keys), len(table.keys) - 1)
        equal_keys = np.flatnonzero(table.keys[key_places] == keys)
        firsts = table.begins[key_places[equal_keys]]
        counts = table.begins[key_places[equal_keys] + 1] - firsts
        for part in parts_of(counts, _CANDIDATES_AT_ONCE):
            slices, entries = expand(firsts[part], counts[part])
            slices = equal_keys[part][slices]
            anchors, begins = table.anchors[entries], places[slices] - table.offsets[entries]
            lengths = self._literals.lengths[anchors]
            fits = begins >= texts.begins[rows[slices]]
            fits &= begins + lengths <= texts.ends[rows[slices]]
            if not fits.all():
                slices, anchors = slices[fits], anchors[fits]
                begins, lengths = begins[fits], lengths[fits]
            literal_begins = self._literals.begins[anchors]
            same = equal_slices(texts.words, begins, self._literals.words, literal_begins, lengths)
            yield rows[slices[same]], anchors[same]


def _distinct(pairs: Iterator[AnchorPairs]) -> Iterator[AnchorPairs]:
    """Yield each pair once. Texts must ascend from one array to the next, so that only the anchors
    of the last text have to be remembered."""
    last_text, last_anchors = -1, np.empty(0, np.int64)
    for rows, anchors in pairs:
        if not len(rows):
            continue
        # Both numbers are below 2^32, so that a pair is one int64.
        packed = np.unique(rows << 32 | anchors)
        rows, anchors = packed >> 32, packed & _LOW
        is_new = np.ones(len(rows), np.bool_)
        repeated = slice(0, int(np.searchsorted(rows, last_text, side="right")))
        is_new[repeated] = ~np.isin(anchors[repeated], last_anchors)
        text = int(rows[-1])
        of_text = anchors[np.searchsorted(rows, text) :]
        last_anchors = np.union1d(last_anchors, of_text) if text == last_text else of_text
        last_text = text
        yield rows[is_new], anchors[is_new]


def parts_of(counts: Array, most: int) -> Iterator[slice]:
    """Yield slices of the counts whose sums are at most `most`, or that have a single count."""
    if counts.sum() <= most:
        yield slice(0, len(counts))
        return
    ends = np.cumsum(counts)
    first = 0
    while first < len(counts):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, last)
        first = last
