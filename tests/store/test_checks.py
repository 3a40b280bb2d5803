"""Checksums find damage of commits and data files."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from psoup.store import CorruptStore
from psoup.store.delta.checksums import checks_of, seal_holds, sealed, unsealed
from psoup.store.delta.files import write_data_file
from psoup.store.delta.reading import DataFileGone, reader

COMMIT = sealed(b'{"commitInfo":{"psoupHash":"%s"}}\n{"add":1}' % unsealed()["psoupHash"].encode())


def with_flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_bit_of_a_commit_is_guarded() -> None:
    assert seal_holds(COMMIT)
    for bit in range(8 * len(COMMIT)):
        assert not seal_holds(with_flipped(COMMIT, bit))


def test_one_and_two_flipped_bits_of_a_data_file_are_damage(tmp_path: Path) -> None:
    file = write_data_file(tmp_path, pa.table({"a": list(range(100))}))
    path, dice = tmp_path / file.path, random.Random(1)
    content = path.read_bytes()
    assert checks_of(content) == file.checks
    for _ in range(50):
        damaged = content
        for bit in dice.sample(range(8 * len(content)), 2):
            damaged = with_flipped(damaged, bit)
            path.write_bytes(damaged)
            with pytest.raises(CorruptStore, match=file.path):
                reader(tmp_path, file).whole()


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
