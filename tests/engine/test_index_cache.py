"""A cached index matches what a built one does, and a damaged file is never used."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.index_queries import FAMILIES, rows, texts
from datastem.arrays import Int64s
from psoup.engine.matching import index_cache, predicates
from psoup.engine.matching.index_cache import IndexCache
from psoup.engine.matching.predicates import LivePredicates
from psoup.store import DeltaFolder
from psoup.store.delta import TableDefinition
from psoup.store.delta.files import write_data_file
from psoup.store.layout import PREDICATES
from querystem.expressions import Expression
from querystem.index import QueryStem
from tests.engine.test_predicates import row
from tests.querystem.shapes import Shapes, batch
from tests.querystem.test_built import insert
from tests.querystem.test_hashed import soon_hashed
from tests.querystem.test_index import alone, rows_by_predicate
from tests.support.lengths import short_first


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IndexCache:
    """Return a cache of indexes of any size, in a folder of its own."""
    monkeypatch.setattr(index_cache, "MIN_CACHED_PREDICATES", 1)
    monkeypatch.setattr(predicates, "MIN_CACHED_PREDICATES", 1)
    return IndexCache(tmp_path / "store", tmp_path / "cache")


def bitmaps_of(stem: QueryStem, batch_: pa.RecordBatch) -> list[list[object]]:
    return [list(column) for column in stem.probe(batch_).bitmaps()]


@pytest.mark.parametrize("name", list(FAMILIES))
def test_oracle_a_mapped_index_gives_equal_bitmaps(name: str, cache: IndexCache) -> None:
    built = QueryStem()
    built.insert_texts(np.arange(900), texts(FAMILIES[name], 900))
    cache.store(7, "v", built)
    mapped = cache.load(7, "v")
    assert mapped is not None
    mapped._check()
    assert bitmaps_of(mapped, rows(400)) == bitmaps_of(built, rows(400))
    assert mapped.columns == built.columns and len(mapped) == 900


@pytest.mark.parametrize("seed", short_first(range(4), 2))
def test_oracle_a_mapped_index_changes_as_a_built_one(
    seed: int, cache: IndexCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_hashed(monkeypatch)
    random = np.random.default_rng(seed)
    shapes, built = Shapes(random), QueryStem()
    known: dict[int, Expression] = {id_: shapes.predicate() for id_ in range(300)}
    insert(built, known)
    cache.store(7, "v", built)
    mapped = cache.load(7, "v")
    assert mapped is not None
    for step in range(6):
        new = {1000 * (step + 1) + n: shapes.predicate() for n in range(step * 20)}
        insert(mapped, new)
        known |= new
        for id_ in random.permutation(sorted(known))[:60].tolist():
            mapped.remove(id_)
            del known[id_]
        mapped._check()
        pooled = batch(random, 80)
        assert rows_by_predicate(mapped.probe(pooled)) == alone(known, pooled)


def test_any_flipped_or_missing_byte_is_a_miss(cache: IndexCache, tmp_path: Path) -> None:
    built = QueryStem()
    built.insert_texts(np.arange(100), texts(FAMILIES["two intervals"], 100))
    cache.store(7, "v", built)
    (path,) = (tmp_path / "cache").iterdir()
    content = path.read_bytes()
    for place in [*range(40), *range(40, len(content), 997)]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert cache.load(7, "v") is None
        path.write_bytes(content[:place])
        assert cache.load(7, "v") is None
    path.write_bytes(content)
    assert cache.load(7, "v") is not None


def test_only_its_own_key_is_loaded_and_earlier_files_go(cache: IndexCache, tmp_path: Path) -> None:
    built = QueryStem()
    built.insert_texts(np.arange(100), texts(FAMILIES["= AND LIKE"], 100))
    cache.store(7, "v", built)
    cache.store(8, "v", built)
    assert cache.load(7, "w") is None and cache.load(9, "v") is None
    assert IndexCache(tmp_path / "other", tmp_path / "cache").load(7, "v") is None
    cache.store(7, "w", built)
    assert cache.load(7, "v") is None
    assert cache.load(7, "w") is not None and cache.load(8, "v") is not None
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_files_that_are_a_week_old_go(cache: IndexCache, tmp_path: Path) -> None:
    built = QueryStem()
    built.insert_texts(np.arange(100), texts(FAMILIES["= AND LIKE"], 100))
    IndexCache(tmp_path / "gone", tmp_path / "cache").store(7, "v", built)
    (tmp_path / "cache" / "new-draft").write_bytes(b"killed")
    for path in (tmp_path / "cache").iterdir():
        os.utime(path, (0, 0))
    cache.store(7, "v", built)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_folder_that_others_can_write_is_not_used(cache: IndexCache, tmp_path: Path) -> None:
    built = QueryStem()
    built.insert_texts(np.arange(100), texts(FAMILIES["two intervals"], 100))
    cache.store(7, "v", built)
    os.chmod(tmp_path / "cache", 0o777)
    assert cache.load(7, "v") is None
    cache.store(7, "w", built)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_workers_share_an_index_and_each_brings_it_up_to_date(
    cache: IndexCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DeltaFolder(tmp_path / "predicates")
    folder.create(TableDefinition(PREDICATES))

    def commit(version: int, ids: range, ended: range = range(0)) -> None:
        lines = [row(id_, version * 10_000 + id_) for id_ in ids]
        lines += [row(id_, version * 10_000 + 5000 + id_, ended=True) for id_ in ended]
        table = pa.Table.from_pylist(lines, PREDICATES)
        written = write_data_file(folder.root, table, bounds=["predicate_id"])
        folder.commit(version, [written], [], operation="TEST")

    def probed(worker: LivePredicates) -> dict[int, list[int]]:
        numbers = pa.record_batch({"a": np.arange(300), "b": np.arange(300) % 7})
        return rows_by_predicate(worker.stem(0).index.probe(numbers))

    commit(1, range(1000))
    first, second, alone_ = (LivePredicates(folder, c) for c in (cache, cache, None))
    for worker in (first, second):
        worker.advance(1)
    expected = probed(first)
    inserted: list[int] = []
    insert_texts = QueryStem.insert_texts

    def counted(self: QueryStem, ids: Int64s, keys: pa.Array) -> None:
        inserted.append(len(ids))
        insert_texts(self, ids, keys)

    monkeypatch.setattr(QueryStem, "insert_texts", counted)
    assert probed(second) == expected and not inserted
    # After a failed task no file is trusted.
    second.discard()
    second.advance(1)
    assert probed(second) == expected and sum(inserted) == second.live(0).size
    commit(2, range(1000, 1040), ended=range(90))
    for worker in (second, alone_):
        worker.advance(2)
    assert probed(second) == probed(alone_) != expected
    # With excluded predicates the index is another one.
    third = LivePredicates(folder, cache)
    third.advance(1, excluded=list(expected)[:1])
    assert probed(third).keys() == expected.keys() - set(list(expected)[:1])


def test_texts_are_read_only_if_an_index_is_built_from_them(
    cache: IndexCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DeltaFolder(tmp_path / "predicates")
    folder.create(TableDefinition(PREDICATES))
    numbers = pa.record_batch({"a": np.arange(300), "b": np.arange(300) % 7})

    def commit(version: int, ids: range, ended: range = range(0)) -> None:
        """Commit the predicates as a compaction that also adds some and ends others."""
        lines = [row(id_, version * 10_000 + id_) for id_ in ids if id_ not in ended]
        written = write_data_file(folder.root, pa.Table.from_pylist(lines, PREDICATES))
        removed = list(folder.snapshot().files.values())
        folder.commit(version, [written], removed, operation="TEST")

    def assert_equal(worker: LivePredicates, version: int) -> None:
        fresh = LivePredicates(folder, IndexCache(tmp_path, tmp_path / "empty"))
        fresh.advance(version)
        assert sorted(worker.live(0).tolist()) == sorted(fresh.live(0).tolist())
        for ranges in (predicates.ALL_IDS, ((100, 400),), ((0, 50), (900, 1100))):
            indexes = (owner.stem(0, ranges).index for owner in (worker, fresh))
            matches = [rows_by_predicate(index.probe(numbers)) for index in indexes]
            assert matches[0] == matches[1]

    reads: list[int] = []
    texts_of = LivePredicates._texts

    def counted(self: LivePredicates) -> tuple[Int64s, pa.Array]:
        reads.append(1)
        return texts_of(self)

    monkeypatch.setattr(LivePredicates, "_texts", counted)
    commit(1, range(1000))
    for expected_reads in (1, 0):
        reads.clear()
        worker = LivePredicates(folder, cache)
        worker.advance(1)
        worker.stem(0).index.probe(numbers)
        assert len(reads) == expected_reads
    # An index that is there gets the predicates that a compaction brings.
    commit(2, range(1040), ended=range(90))
    worker.advance(2)
    assert_equal(worker, 2)
    commit(3, range(1041), ended=range(95))
    worker.advance(3)
    assert_equal(worker, 3)
