"""Checksums find damage, and where a single bit turned over, the bit."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from psoup.store import CorruptStore
from psoup.store.delta.checksums import (
    checks_of,
    seal_holds,
    sealed,
    turned,
    unsealed,
    without_flip,
    without_flip_by_crc,
)
from psoup.store.delta.files import write_data_file
from psoup.store.delta.reading import DataFileGone, reader

COMMIT = sealed(b'{"commitInfo":{"psoupHash":"%s"}}\n{"add":1}' % unsealed()["psoupHash"].encode())


def test_every_bit_of_a_commit_is_guarded_and_found_again() -> None:
    assert seal_holds(COMMIT)
    for bit in range(8 * len(COMMIT)):
        damaged = turned(COMMIT, bit)
        assert not seal_holds(damaged)
        assert without_flip(damaged, seal_holds) == COMMIT


def test_two_bits_are_damage_that_stays(tmp_path: Path) -> None:
    file = write_data_file(tmp_path, pa.table({"a": list(range(100))}))
    path, dice = tmp_path / file.path, random.Random(1)
    content = path.read_bytes()
    assert checks_of(content) == file.checks
    for _ in range(50):
        one, two = dice.sample(range(8 * len(content)), 2)
        path.write_bytes(turned(turned(content, one), two))
        with pytest.raises(CorruptStore, match=file.path):
            reader(tmp_path, file).whole()
        assert reader(tmp_path, file).mended() is None
        path.write_bytes(turned(content, one))
        assert reader(tmp_path, file).mended() == content


def test_a_bit_follows_from_its_crc() -> None:
    dice = random.Random(2)
    for size in (1, 7, 64, 1000):
        content = dice.randbytes(size)
        bit = dice.randrange(8 * size)
        assert without_flip_by_crc(turned(content, bit), zlib.crc32(content)) == content


def test_a_file_that_is_cut_short_or_gone_is_told_apart(tmp_path: Path) -> None:
    file = write_data_file(tmp_path, pa.table({"a": list(range(100))}))
    path = tmp_path / file.path
    path.write_bytes(path.read_bytes()[:-1])
    for read in (reader(tmp_path, file).whole, reader(tmp_path, file).read):
        with pytest.raises(CorruptStore, match="damaged"):
            read()
    path.unlink()
    with pytest.raises(DataFileGone, match=file.path):
        reader(tmp_path, file).read()
