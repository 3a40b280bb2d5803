"""Bitmaps encoded together equal, byte for byte, those encoded one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from datastem.arrays import UInt16s
from results.bitmaps import _binary, encode, encode_lines, encode_lists, set_bits

Random = np.random.Generator
pytestmark = pytest.mark.usefixtures("core_path")


def _few(random: Random) -> UInt16s:
    return np.unique(random.integers(0, 65536, random.integers(1, 20))).astype(np.uint16)


def _one_run(random: Random) -> UInt16s:
    first = random.integers(0, 60_000)
    return np.arange(first, first + random.integers(1, 5000)).astype(np.uint16)


def _share(random: Random) -> UInt16s:
    chosen = random.random(65536) < random.random()
    chosen[-1] = True
    return np.flatnonzero(chosen).astype(np.uint16)


def _short_run(random: Random) -> UInt16s:
    first = random.integers(0, 65530)
    return np.arange(first, first + random.integers(1, 6)).astype(np.uint16)


def _short_runs(random: Random) -> UInt16s:
    firsts = random.integers(0, 65536, random.integers(1, 4000))
    runs = [np.arange(first, first + random.integers(1, 9)) for first in firsts]
    return np.unique(np.minimum(np.concatenate(runs), 65535)).astype(np.uint16)


def _at_the_limit(random: Random) -> UInt16s:
    count = int(random.choice([4095, 4096, 4097]))
    return np.sort(random.choice(65536, count, replace=False)).astype(np.uint16)


KINDS: list[Callable[[Random], UInt16s]] = [
    _few,
    _short_run,
    _one_run,
    _share,
    _short_runs,
    _at_the_limit,
]


@pytest.mark.parametrize("seed", range(6))
def test_differential_bytes(seed: int) -> None:
    random = np.random.default_rng(seed)
    kinds = KINDS[:2] if seed < 2 else KINDS
    lists = [kinds[random.integers(len(kinds))](random) for _ in range(60)]
    counts, lows = np.array([len(members) for members in lists]), np.concatenate(lists)
    alone = [encode(members) for members in lists]
    assert encode_lists(counts, lows).to_pylist() == alone
    bits = np.zeros((len(lists), 65536), np.bool_)
    for line, members in enumerate(lists):
        bits[line, members] = True
    words = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    order = random.permutation(len(lists))
    assert encode_lines(words, order, counts[order], 0).to_pylist() == [alone[n] for n in order]
    assert (set_bits(words) == lows).all()


def test_lines_may_begin_later_and_be_short() -> None:
    words = np.array([[1, 1 << 63], [0, 7]], np.uint64)
    encoded = encode_lines(words, np.arange(2), np.array([2, 3]), first=1022)
    expected = [[65408, 65535], [65472, 65473, 65474]]
    assert encoded.to_pylist() == [encode(np.array(members, np.uint16)) for members in expected]


def test_no_sets_have_no_bitmaps() -> None:
    nothing = np.empty(0, np.int64)
    assert not len(encode_lists(nothing, np.empty(0, np.uint16)))
    assert not len(encode_lines(np.empty((0, 0), np.uint64), nothing, nothing, 0))


def test_more_bytes_than_arrow_can_address_are_refused() -> None:
    with pytest.raises(OverflowError, match="2 bitmaps of 2,147,483,648 bytes"):
        _binary(np.array([2**31 - 1, 1]), bytearray())
